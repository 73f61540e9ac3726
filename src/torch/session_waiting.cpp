// Recorded forwards whose backward comes in the step of a later one: what that shows of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "torch/session.h"
#include "torch/step_times.h"

namespace pudica::hooks {

void Session::tell_waiting(bool waits, const std::vector<RecordedCall>& calls,
                           StepOutcome& outcome) {
  if (!waits) {
    outcome.waited = waited_forwards();
    return;
  }
  RecordedStep step;
  step.calls = calls;
  step.gradients_present = context_.gradients_present;
  step.begins_at_layer = began_at_layer_;
  step.shares_backward = context_.waiting_forwards > 0;
  step.waits = true;
  step.casts_present = context_.casts_present;
  constexpr std::size_t kMostWaiting = 8;
  if (waiting_.size() == kMostWaiting) waiting_.erase(waiting_.begin());
  WaitedForward forward{context_, decision_.plan, outcome.forwards, {}};
  waiting_.push_back({step_, std::move(forward), std::move(step)});
}

// Outputs that no layer behind it reads go in the forward.
void Session::complete(const ForwardNotes& notes, RecordedStep& step) const {
  const Recorder& recorder = state_->recorder();
  const auto add_frees = [&](const std::vector<const void*>& places,
                             std::vector<std::int64_t>& events) {
    for (const void* const place : places) {
      const std::int64_t event = recorder.freed_at(place);
      if (event != Recorder::kNone) events.push_back(event);
    }
  };
  for (std::size_t i = 0; i < step.calls.size(); ++i) {
    const auto layer = static_cast<std::int32_t>(i);
    RecordedCall& call = step.calls[i];
    call.disturbed = call.disturbed || notes.revoked.contains(layer);
    call.held_output_bytes = notes.outputs.held_bytes(layer);
    call.left_input_bytes = notes.outputs.left_bytes(layer);
    add_frees(notes.outputs.gone_early(layer), call.early_frees);
    const auto recovery = notes.recovery.find(layer);
    if (recovery != notes.recovery.end()) call.recovery = recovery->second;
  }
  add_frees(notes.outputs.shared(), step.shared_frees);
}

std::vector<WaitedForward> Session::waited_forwards() {
  std::vector<WaitedForward> out;
  std::set<std::uint16_t>
      behind;  // classes of later forwards: their parameters have gradients then
  for (const Call& call : calls_) behind.insert(call.layer_class);
  for (auto waiting = waiting_.rbegin(); waiting != waiting_.rend(); ++waiting) {
    const auto notes = state_->waited(waiting->number);
    if (!notes) continue;
    complete(*notes, waiting->step);
    const auto steps_before = static_cast<std::int32_t>(step_ - waiting->number);
    StepProfile profile = build_waited_profile(state_->recorder(), {waiting->step, steps_before});
    const auto accumulate = [&behind](SegmentKey& key) {
      const bool again = key.kind == SegmentKind::kBackward && behind.contains(key.layer_class);
      if (again) key.variant |= SegmentKey::kGradientsPresent;
    };
    for (SegmentObservation& item : profile.observations) accumulate(item.key);
    for (LateSegment& item : profile.late) accumulate(item.key);
    for (const RecordedCall& call : waiting->step.calls) behind.insert(call.layer_class);
    if (profile.observations.empty()) continue;
    late_times_.add(waiting->forward.context, std::move(profile.late));
    waiting->forward.segments = std::move(profile.observations);
    out.push_back(std::move(waiting->forward));
  }
  waiting_.clear();
  std::ranges::reverse(out);
  return out;
}

}  // namespace pudica::hooks
