// The session's steps that rest: all is kept without hooks, and nobody needs to look.
#include <algorithm>
#include <ranges>
#include <utility>

#include "torch/session.h"

namespace pudica::hooks {

bool Session::may_rest() const {
  if (!step_open_ || !calls_.empty() || !decision_.plan || policy_failed_) return false;
  const Plan& plan = *decision_.plan;
  if (decision_.record || decision_.may_change || !plan.predicts_peak() || !plan.feasible ||
      plan.modes.empty() || keeps_revocably() || context_.shares_backward()) {
    return false;
  }
  return held_predictions_.trusts() && std::ranges::all_of(plan.modes, [](const Mode& mode) {
           return mode.kind == Mode::Kind::kKeep;
         });
}

bool Session::rest(std::int64_t kind, bool same_model) {
  if (!same_model) rest_.forget();
  if (!may_rest() || std::this_thread::get_id() != thread_) return false;
  contain("the rest of a step", [&] { rest_.begin(kind, context_.shape, is_timed()); });
  return rest_.rests();
}

bool Session::passes(std::int64_t passed) noexcept {
  if (!step_open_ || !rest_.rests() || std::this_thread::get_id() != thread_) return false;
  if (!held_predictions_.grows(static_cast<std::size_t>(passed), grown_bytes())) return true;
  wake(passed);
  return false;
}

void Session::wake(std::int64_t passed) noexcept {
  if (!step_open_ || !rest_.rests() || std::this_thread::get_id() != thread_) return;
  contain("the rest of a step", [&] {
    rest_.reset();
    const Plan& plan = *decision_.plan;
    const auto calls = std::min(static_cast<std::size_t>(std::max<std::int64_t>(0, passed)),
                                std::min(plan.modes.size(), plan.layer_classes.size()));
    for (std::size_t i = 0; i < calls; ++i) {
      Call call;
      call.layer_class = plan.layer_classes[i];
      call.place = i;
      call.apart = is_apart(i, {});
      call.passed_by = true;
      calls_.push_back(call);
    }
    held_predictions_.passed(calls);
  });
}

void Session::rested(std::int64_t passed, const std::vector<at::Tensor>& outputs) noexcept {
  if (!rest_.rests()) return;
  passed_by_ = passed;
  // Whether the next forward shares this one's backward. That the first layer's outputs show, else
  // the model's.
  contain("a gradient hook", [&] { shared_backward_.watch(outputs); });
}

bool Session::ran_free() const {
  const auto is_free = [](const Call& call) { return call.hook_free; };
  return std::ranges::any_of(calls_, is_free) && std::ranges::all_of(calls_, [&](const Call& call) {
           return is_free(call) || call.mode.kind != Mode::Kind::kKeep;
         });
}

// Of any step that is over, and of the one before it, which may have stood in its way.
void Session::note_hook_free(const StepReport& report) {
  ran_hook_free_ = report.rested || std::ranges::any_of(calls_, &Call::hook_free);
  const bool was_short = report.overrun || report.revocations > 0;
  if (std::exchange(free_one_waits_, false) && was_short) held_predictions_.stood_in_the_way();
}

void Session::note_course(bool waits) {
  constexpr int kStepsInHooks = 8;
  if (waits && !context_.shares_backward()) {
    steps_until_free_ = kStepsInHooks;
  } else if (shared_backward_.own_went_back()) {
    steps_until_free_ = std::max(0, steps_until_free_ - 1);
  }
}

// Of a step that is over as it should.
void Session::judge_prediction(const StepReport& report) {
  const Bytes peak = report.peak_bytes;
  // A plan for forwards that share a backward is one of once.
  const bool whole = report.revocations == 0 && !context_.shares_backward();
  held_predictions_.end(peak.count(), whole, report.rested);
  if (!rest_.is_asked()) return;
  contain("the rest of a step", [&] {
    const bool held = report.revocations == 0 && report.plan &&
                      HeldPredictions::holds(*report.plan, peak.count());
    if (report.rested) return rest_.rested(held);
    RestHabit::Classes classes;
    for (const Call& call : calls_) classes.push_back(call.layer_class);
    rest_.looked(classes, held && std::ranges::all_of(calls_, &Call::hook_free));
  });
}

}  // namespace pudica::hooks
