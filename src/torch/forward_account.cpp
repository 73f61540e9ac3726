#include "torch/forward_account.h"

#include <torch/csrc/autograd/graph_task.h>

#include "torch/meter.h"

namespace pudica::hooks {
namespace {

int current_backward() { return torch::autograd::get_current_graph_task_id(); }

}  // namespace

bool ForwardAccount::in_backward() const { return current_backward() != within_.load(); }

void ForwardAccount::begin(bool shares) {
  std::uint32_t next = forwards_.fetch_add(1) + 1;
  if (next == 0) next = forwards_.fetch_add(1) + 1;  // 0 says none
  if (!shares) shared_from_.store(next);
  within_.store(current_backward());
  forward_.store(next);
  held_.store(own_.exchange(0));
  returned_.store(0);
}

std::uint32_t ForwardAccount::made(std::int64_t bytes) {
  const std::uint32_t now = forward_.load(std::memory_order_relaxed);
  if (now == 0) return 0;
  if (in_backward()) {
    forward_.store(0);
    return 0;
  }
  own_.fetch_add(bytes);
  return now;
}

ForwardAccount::Freed ForwardAccount::freed(std::int64_t bytes, std::uint32_t forward) {
  if (forward == 0) return {};
  const std::uint32_t latest = forwards_.load(std::memory_order_relaxed);
  if (forward == latest) {
    own_.fetch_sub(bytes);
    return {};
  }
  const std::uint32_t from = shared_from_.load(std::memory_order_relaxed);
  if (in_backward()) return {forward - from <= latest - from, false};
  if (forward + 1 != latest) return {false, false};
  const std::int64_t returned = returned_.fetch_add(bytes) + bytes;
  return {false, Meter::nearly_all_returned(returned, held_.load())};
}

}  // namespace pudica::hooks
