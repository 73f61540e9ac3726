#include "torch/registry.h"

#include <algorithm>
#include <vector>

#include <torch/csrc/autograd/graph_task.h>

#include "torch/frame.h"

namespace pudica::hooks {
namespace {

class RevokingGuard {
 public:
  RevokingGuard() { this_thread_is_revoking() = true; }
  ~RevokingGuard() { this_thread_is_revoking() = false; }
  RevokingGuard(const RevokingGuard&) = delete;
  RevokingGuard& operator=(const RevokingGuard&) = delete;
};

}  // namespace

void Registry::add(Frame& frame) {
  const std::lock_guard lock(mutex_);
  frame.sequence_ = next_sequence_++;
  frame.before_ = newest_;
  frame.after_ = nullptr;
  (newest_ != nullptr ? newest_->after_ : oldest_) = &frame;
  newest_ = &frame;
  frame.listed_ = true;
}

void Registry::remove(Frame& frame) {
  const std::lock_guard lock(mutex_);
  (frame.before_ != nullptr ? frame.before_->after_ : oldest_) = frame.after_;
  (frame.after_ != nullptr ? frame.after_->before_ : newest_) = frame.before_;
  frame.listed_ = false;
}

std::int64_t Registry::listed_frames() const {
  const std::lock_guard lock(mutex_);
  std::int64_t count = 0;
  for (const Frame* frame = oldest_; frame != nullptr; frame = frame->after_) ++count;
  return count;
}

bool Registry::eligible(const Frame& frame, Pass pass, int graph_task) {
  if (frame.state_ != Frame::State::kKept || !frame.inputs_unchanged()) return false;
  const bool touched = graph_task >= 0 && frame.touched_task_ == graph_task;
  if (pass == Pass::kUntouched) return !touched;
  return touched && frame.revocations_ == 0;
}

std::int64_t Registry::revoke_pass(Pass pass, std::int64_t missing_bytes) {
  struct Candidate {
    Frame* frame;
    double us_per_byte;
  };
  const int graph_task = torch::autograd::get_current_graph_task_id();
  std::vector<Candidate> candidates;
  for (Frame* frame = oldest_; frame != nullptr; frame = frame->after_) {
    const std::unique_lock lock(frame->mutex_, std::try_to_lock);
    if (!lock || !eligible(*frame, pass, graph_task)) continue;
    const std::int64_t bytes = frame->freeable_bytes(/*drop=*/false);
    if (bytes <= 0) continue;
    candidates.push_back(
        {frame, frame->options_.expected_recompute_us / static_cast<double>(bytes)});
  }
  // Stable: equal prices stay in forward order, the oldest first.
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& left, const Candidate& right) {
                     return left.us_per_byte < right.us_per_byte;
                   });
  std::int64_t freed = 0;
  for (const Candidate& candidate : candidates) {
    if (freed >= missing_bytes) break;
    Frame& frame = *candidate.frame;
    const std::unique_lock lock(frame.mutex_, std::try_to_lock);
    if (!lock || !eligible(frame, pass, graph_task)) continue;
    const std::int64_t before = meter_.in_use_bytes();
    frame.state_ = Frame::State::kDropped;
    ++frame.revocations_;
    if (frame.options_.observer) frame.options_.observer->revoked(frame.options_.layer);
    frame.freeable_bytes(/*drop=*/true);
    freed += before - meter_.in_use_bytes();
    revocations_.fetch_add(1);
  }
  return freed;
}

bool Registry::revoke(std::int64_t missing_bytes) {
  if (this_thread_is_revoking()) return false;
  const RevokingGuard revoking;
  const std::lock_guard lock(mutex_);
  std::int64_t freed = revoke_pass(Pass::kUntouched, missing_bytes);
  if (freed < missing_bytes) freed += revoke_pass(Pass::kTouched, missing_bytes - freed);
  return freed > 0;
}

void Registry::make_room(std::int64_t needed_bytes) {
  const std::int64_t cap = meter_.cap_bytes();
  if (cap <= 0) return;
  const std::int64_t missing = meter_.in_use_bytes() + needed_bytes - cap;
  if (missing > 0) revoke(missing);
}

}  // namespace pudica::hooks
