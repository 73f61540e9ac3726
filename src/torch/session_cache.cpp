// The session's part for devices whose allocator caches: what it keeps beside the bytes in use.
#include <algorithm>

#include "base/log.h"
#include "torch/session.h"

namespace pudica::hooks {

// Under a budget that binds, segments of fixed sizes that an earlier shape left are in the way of
// this one's: they go back now, when next to nothing holds them, and not in the middle of the step.
// Pages serve any shape, and to map them anew is dear: they go back where the last step came to the
// cap with nothing left to give up, or to an allocation that failed.
void Session::prepare_cache() {
  const auto cache = meter_.cache_bytes();
  const std::int64_t budget = options_.budget_bytes.count();
  leaves_doubt_ = false;
  reserved_before_ = cache ? cache->reserved_bytes : 0;
  if (!cache || budget <= 0) return;
  const Plan* const plan = decision_.plan.get();
  const bool holes = cache->page_bytes == 0 && plan != nullptr && plan->revocable;
  const bool unsure = plan == nullptr || reached_cap_ || holes;
  leaves_doubt_ = plan != nullptr &&
                  gap_.may_not_fit(plan->predicted_peak_bytes.count(), budget, cache->page_bytes);
  constexpr std::int64_t kMuchShare = 16;
  const bool much = cache->reserved_bytes - meter_.in_use_bytes() > budget / kMuchShare;
  if (!unsure || !much) return;
  meter_.empty_cache();
  reserved_before_ = meter_.cache_bytes()->reserved_bytes;
}

// Of the budget, for what the allocator cannot use or give back, and for its cache.
Bytes Session::left_free_bytes() const {
  const auto cache = meter_.cache_bytes();
  if (!cache || options_.budget_bytes <= Bytes(0)) return Bytes(0);
  const std::int64_t budget = options_.budget_bytes.count();
  const std::int64_t comfort = cache->page_bytes > 0 ? comfort_.bytes(budget) : 0;
  return Bytes(std::min(gap_.bytes() + cache->page_bytes + comfort, budget / 2));
}

void Session::advise(const CacheBytes& cache) {
  if (cache.page_bytes > 0 || told_of_holes_ || !gap_.is_dear(meter_.cap_bytes())) return;
  told_of_holes_ = true;
  log_warn("holes between the segments of torch's CUDA allocator take " +
           format_bytes(Bytes(gap_.bytes())) + " of the budget of " +
           format_bytes(Bytes(meter_.cap_bytes())) +
           "; expandable ones have hardly any: PYTORCH_ALLOC_CONF=expandable_segments:True, or in "
           "Python attach(..., allocator=\"expandable\")");
}

// A library may take another way where it is refused memory, cuDNN for one, and another way has
// other bits: nobody would know.
void Session::tell_refusals() {
  if (call_failed_ || told_of_refusals_ || meter_.refusals() <= refusals_before_) return;
  told_of_refusals_ = true;
  log_warn(
      "the hard budget refused an allocation, and the step went on: where it was not your loop "
      "that caught the error, a library took another way (cuDNN with less workspace), and its "
      "numbers may be others than without a budget; a soft budget refuses nothing");
}

void Session::report_cache(StepReport& report) {
  tell_refusals();
  const auto cache = meter_.cache_bytes();
  if (!cache) return;
  report.active_peak_bytes = Bytes(cache->active_peak_bytes);
  report.reserved_peak_bytes = Bytes(cache->reserved_peak_bytes);
  report.gap_bytes = Bytes(cache->gap_bytes);
  if (report.plan && report.plan->predicts_peak()) {
    report.predicted_reserved_bytes =
        Bytes(gap_.reserved(report.plan->predicted_peak(report.ran_free).count(), reserved_before_,
                            report.budget_bytes.count()));
  }
  reached_cap_ = cache->reached_cap;
  gap_.note(cache->gap_bytes, meter_.peak_bytes(), meter_.cap_bytes());
  gap_.note_reserved(cache->reserved_peak_bytes, reserved_before_, meter_.peak_bytes());
  note_comfort(report, *cache);
  advise(*cache);
}

// Segments that do not grow by pages have holes that are in the way whatever is left free.
void Session::note_comfort(const StepReport& report, const CacheBytes& cache) {
  const Plan* const plan = report.plan.get();
  const std::int64_t budget = options_.budget_bytes.count();
  if (cache.page_bytes == 0 || plan == nullptr || !plan->predicts_peak() || budget <= 0) return;
  comfort_.note({.fits = plan->feasible,
                 .missing_bytes = (plan->predicted_peak_bytes - context_.budget_bytes).count(),
                 .as_planned = !call_failed_ && report.revocations == 0,
                 .squeezed = cache.squeezes > 0},
                budget);
}

}  // namespace pudica::hooks
