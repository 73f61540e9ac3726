#include "plan_cache/plan_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pudica {
namespace {

// A base that fell by less than this share of the budget is not worth a new plan.
constexpr std::int64_t kShareWorthAPlan = 400;

bool keeps_all(const Plan& plan) {
  return std::ranges::all_of(plan.modes, [](Mode mode) { return mode == Mode::keep(); });
}

}  // namespace

PlanStore::PlanStore(const PlanCacheOptions& options, double ample_fraction)
    : ample_fraction_(ample_fraction),
      caches_{make_lru_plan_cache(options), make_lru_plan_cache(options),
              make_lru_plan_cache(options), make_lru_plan_cache(options)} {}

const CachedPlan* PlanStore::find(const StepContext& context, std::uint64_t step) {
  const CachedPlan* entry = of(context).find(context.shape, step);
  if (entry != nullptr && holds(*entry, context)) {
    ++hits_;
    return entry;
  }
  ++misses_;
  return nullptr;
}

bool PlanStore::holds(const CachedPlan& entry, const StepContext& context) const {
  if (entry.created_step <= predictions_step_) return false;
  if (entry.created_step <= times_step_ && !keeps_all(*entry.plan)) return false;
  if (context.budget_bytes <= Bytes(0)) return true;
  const std::int64_t growth = (context.base_bytes - entry.base_bytes).count();
  const std::int64_t returning = (context.returning_bytes - entry.returning_bytes).count();
  const std::int64_t until_return_room = entry.until_return_room_bytes.count();
  if (growth > entry.slack_bytes.count()) return false;
  if (growth + returning > entry.slack_bytes.count() + until_return_room) return false;
  if (!entry.plan->revocable) {
    // Hook-free keep is only for ample room, and the room may have shrunk.
    const double ample = ample_fraction_ * static_cast<double>(context.budget_bytes.count());
    if (static_cast<double>(predicted_peak(entry, context).count()) > ample) return false;
  }
  const bool could_be_faster = entry.plan->predicted_extra_seconds > 0 || !entry.plan->feasible;
  const std::int64_t worthwhile = context.budget_bytes.count() / kShareWorthAPlan;
  const bool limited_by_returning = until_return_room <= worthwhile;
  const std::int64_t shrink =
      -growth - (limited_by_returning ? std::min<std::int64_t>(returning, 0) : 0);
  return !could_be_faster || shrink <= worthwhile;
}

Bytes PlanStore::predicted_peak(const CachedPlan& entry, const StepContext& context) {
  return context.base_bytes +
         std::max(entry.whole_bytes, entry.until_return_bytes + context.returning_bytes);
}

void PlanStore::insert(const StepContext& context, CachedPlan plan, std::uint64_t step) {
  of(context).insert(std::move(plan), step);
}

std::vector<std::uint8_t> PlanStore::warm_choice(const StepContext& context) const {
  const CachedPlan* longer = of(context).nearest_longer(context.shape);
  return longer == nullptr ? std::vector<std::uint8_t>{} : longer->choice;
}

void PlanStore::available_changed(Bytes shrink) {
  for (const auto& cache : caches_) cache->available_changed(shrink);
}

void PlanStore::record_measured(const StepContext& context, Bytes peak_bytes) {
  of(context).record_measured(context.shape, peak_bytes);
}

void PlanStore::erase(const StepContext& context) { of(context).erase(context.shape); }

void PlanStore::clear() {
  for (const auto& cache : caches_) cache->clear();
}

std::vector<const CachedPlan*> PlanStore::entries(bool gradients_present) const {
  std::vector<const CachedPlan*> entries = caches_[place_of(gradients_present, false)]->entries();
  std::ranges::copy(caches_[place_of(gradients_present, true)]->entries(),
                    std::back_inserter(entries));
  return entries;
}

}  // namespace pudica
