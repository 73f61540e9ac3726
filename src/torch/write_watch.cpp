#include "torch/write_watch.h"

#include <algorithm>

#include "torch/tape_operator.h"

namespace pudica::hooks {

WriteWatch::Writes WriteWatch::writes(const c10::Storage& storage) const {
  const auto found = writes_.find(storage.unsafeGetStorageImpl());
  if (found == writes_.end()) return Writes::kPossible;
  return incomplete_ ? std::max(found->second, Writes::kPossible) : found->second;
}

void WriteWatch::note(const c10::IValue& argument, Writes writes) {
  each_tensor(argument, [this, writes](const at::Tensor& tensor) {
    const auto found = writes_.find(tensor.storage().unsafeGetStorageImpl());
    if (found != writes_.end()) found->second = std::max(found->second, writes);
  });
}

void WriteWatch::record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack* stack) {
  if (keys.has(c10::DispatchKey::Python)) {
    incomplete_ = true;  // a mode or a subclass may run anything in its place
  } else if (!writes_.empty()) {
    const OperatorFacts& facts = facts_of(op);
    const std::size_t base = stack->size() - facts.arguments;
    for (std::size_t i = 0; i < facts.arguments; ++i) {
      const c10::IValue& argument = (*stack)[base + i];
      if (facts.writes[i]) {
        note(argument, Writes::kCertain);
      } else if (facts.foreign) {
        note(argument, Writes::kPossible);
      }
    }
  }
  run_below_tape(op, keys, stack);
}

}  // namespace pudica::hooks
