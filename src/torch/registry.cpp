#include "torch/registry.h"

#include <functional>
#include <queue>
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
  if (pass == Pass::kByRule && !frame.eviction_) return false;
  if (frame.state_ == Frame::State::kTaped) {
    return pass != Pass::kTouched && !frame.recovering_ && frame.tape_->externals_unchanged();
  }
  if (frame.state_ == Frame::State::kOffloaded) return pass == Pass::kUntouched;
  if (frame.state_ != Frame::State::kKept || !frame.inputs_unchanged()) return false;
  const bool touched = graph_task >= 0 && frame.touched_task_ == graph_task;
  if (pass == Pass::kUntouched) return !touched;
  return touched && frame.revocations_ == 0;
}

// Microseconds per byte of what the frame would give next, or its score; negative: nothing.
double Registry::price_of(Frame& frame, Pass pass) {
  if (pass == Pass::kByRule) {
    const auto next = frame.next_eviction();
    return next ? next->score : -1;
  }
  if (frame.gives_single_tensors()) return frame.next_price_us();
  if (frame.state_ == Frame::State::kTaped) return frame.rest_price_us();
  if (frame.state_ == Frame::State::kOffloaded) return frame.has_fetched_ahead() ? 0 : -1;
  const std::int64_t bytes = frame.freeable_bytes(/*drop=*/false);
  if (bytes <= 0) return -1;
  return frame.options_.expected_recompute_us / static_cast<double>(bytes);
}

// Bytes that came back.
std::int64_t Registry::take_from(Frame& frame, Pass pass) {
  const std::int64_t before = meter_.in_use_bytes();
  if (frame.state_ == Frame::State::kOffloaded) {
    frame.drop_fetched_ahead();  // it only comes later then: nothing is recomputed
    return before - meter_.in_use_bytes();
  }
  if (frame.revocations_++ == 0) revocations_.fetch_add(1);
  if (frame.options_.observer) frame.options_.observer->revoked(frame.options_.layer);
  if (pass == Pass::kByRule) {
    if (const auto next = frame.next_eviction()) frame.evict(next->node);
  } else if (frame.gives_single_tensors()) {
    frame.give_up_next();
  } else if (frame.state_ == Frame::State::kTaped) {
    frame.give_up_rest();
  } else {
    frame.state_ = Frame::State::kDropped;
    frame.freeable_bytes(/*drop=*/true);
  }
  return before - meter_.in_use_bytes();
}

std::int64_t Registry::revoke_pass(Pass pass, std::int64_t missing_bytes) {
  struct Candidate {
    double price_us;
    Frame* frame;
    // Equal prices in forward order, the oldest first.
    bool operator>(const Candidate& other) const {
      if (price_us != other.price_us) return price_us > other.price_us;
      return frame->sequence_ > other.frame->sequence_;
    }
  };
  const int graph_task = torch::autograd::get_current_graph_task_id();
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  for (Frame* frame = oldest_; frame != nullptr; frame = frame->after_) {
    const std::unique_lock lock(frame->mutex_, std::try_to_lock);
    if (!lock || !eligible(*frame, pass, graph_task)) continue;
    const double price_us = price_of(*frame, pass);
    if (price_us >= 0) candidates.push({price_us, frame});
  }
  std::int64_t freed = 0;
  while (freed < missing_bytes && !candidates.empty()) {
    Frame& frame = *candidates.top().frame;
    candidates.pop();
    const std::unique_lock lock(frame.mutex_, std::try_to_lock);
    if (!lock || !eligible(frame, pass, graph_task)) continue;
    freed += take_from(frame, pass);
    if (frame.state_ != Frame::State::kTaped) continue;
    const double price_us = price_of(frame, pass);  // of what is still there
    if (price_us >= 0) candidates.push({price_us, &frame});
  }
  return freed;
}

bool Registry::revoke(std::int64_t missing_bytes) {
  if (this_thread_is_revoking()) return false;
  const RevokingGuard revoking;
  const std::lock_guard lock(mutex_);
  std::int64_t freed = revoke_pass(Pass::kByRule, missing_bytes);
  if (freed < missing_bytes) freed += revoke_pass(Pass::kUntouched, missing_bytes - freed);
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
