#include "torch/trial_watch.h"

#include <utility>

#include <c10/util/Exception.h>

#include "torch/tape_operator.h"

namespace pudica::hooks {
namespace {

TrialWatch*& current() {
  static thread_local TrialWatch* watch = nullptr;
  return watch;
}

}  // namespace

TrialWatch::TrialWatch() : before_(std::exchange(current(), this)) {}
TrialWatch::~TrialWatch() { current() = before_; }
TrialWatch* TrialWatch::of_this_thread() { return current(); }

void TrialWatch::protect(const at::Tensor& tensor) {
  if (has_bytes(tensor)) protected_.insert(tensor.storage().unsafeGetStorageImpl());
}

void TrialWatch::record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack* stack) {
  const OperatorFacts& facts = facts_of(op);
  if (facts.writes_any) {
    const std::size_t base = stack->size() - facts.arguments;
    bool writes = false;
    for (std::size_t i = 0; i < facts.arguments; ++i) {
      if (!facts.writes[i]) continue;
      each_tensor((*stack)[base + i], [&](const at::Tensor& tensor) {
        // Nothing is written of what is empty.
        const bool any = tensor.numel() > 0;
        writes = writes || (any && protected_.contains(tensor.storage().unsafeGetStorageImpl()));
      });
    }
    if (writes) {
      stopped_at_ = "it writes a tensor that it did not make (" + facts.name + ")";
      TORCH_CHECK(false, stopped_at_);
    }
  }
  run_below_tape(op, keys, stack);
}

}  // namespace pudica::hooks
