// WriteWatch: whether an operator has written what was copied while a layer still runs. Autograd's
// version counters do not see writes through `.data`.
#pragma once

#include <unordered_map>

#include <c10/core/Storage.h>

#include "torch/tape_dispatch.h"

namespace pudica::hooks {

// For one layer call, under a TapeGuard. Sees what operators say they write, not what is written
// through raw pointers. Not thread-safe: the frame's mutex guards watch() and written().
class WriteWatch final : public OperatorObserver {
 public:
  // From now on. The storage must live as long as it is asked for: it is known by its address.
  void watch(const c10::Storage& storage) { written_[storage.unsafeGetStorageImpl()] = false; }
  // Since watch(), or it cannot be told (operators ran unseen, it was not watched).
  [[nodiscard]] bool written(const c10::Storage& storage) const;

  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
              torch::jit::Stack* stack) override;

 private:
  void note(const c10::IValue& argument);

  std::unordered_map<const c10::StorageImpl*, bool> written_;
  bool incomplete_ = false;
};

}  // namespace pudica::hooks
