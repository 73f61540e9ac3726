#include "torch/write_watch.h"

#include "torch/tape_operator.h"

namespace pudica::hooks {

bool WriteWatch::written(const c10::Storage& storage) const {
  if (incomplete_) return true;
  const auto found = written_.find(storage.unsafeGetStorageImpl());
  return found == written_.end() || found->second;
}

void WriteWatch::note(const c10::IValue& argument) {
  each_tensor(argument, [this](const at::Tensor& tensor) {
    const auto found = written_.find(tensor.storage().unsafeGetStorageImpl());
    if (found != written_.end()) found->second = true;
  });
}

void WriteWatch::record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack* stack) {
  if (keys.has(c10::DispatchKey::Python)) {
    incomplete_ = true;  // a mode or a subclass may run anything in its place
  } else if (!written_.empty()) {
    const OperatorFacts& facts = facts_of(op);
    const bool any = facts.not_repeatable;  // its schema does not tell all that it does
    const std::size_t base = stack->size() - facts.arguments;
    for (std::size_t i = 0; i < facts.arguments; ++i) {
      if (any || facts.writes[i]) note((*stack)[base + i]);
    }
  }
  run_below_tape(op, keys, stack);
}

}  // namespace pudica::hooks
