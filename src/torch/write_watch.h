// WriteWatch: whether an operator has written what was copied while a layer still runs. Autograd's
// version counters do not see writes through `.data`.
#pragma once

#include <cstdint>
#include <unordered_map>

#include <c10/core/Storage.h>

#include "torch/tape_dispatch.h"

namespace pudica::hooks {

// For one layer call, on its thread, under a TapeGuard. Sees what operators say they write, not
// what is written through raw pointers.
class WriteWatch final : public OperatorObserver {
 public:
  enum class Writes : std::uint8_t { kNone, kPossible, kCertain };

  // From the first time on. The storage must live as long as it is asked for: it is known by its
  // address. One that comes in the place of another takes over what is known of that.
  void watch(const c10::Storage& storage) {
    writes_.try_emplace(storage.unsafeGetStorageImpl(), Writes::kNone);
  }
  // Since watch(). Possible: an operator that is not torch's own has read it, operators ran unseen,
  // or it was not watched.
  [[nodiscard]] Writes writes(const c10::Storage& storage) const;

  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
              torch::jit::Stack* stack) override;

 private:
  void note(const c10::IValue& argument, Writes writes);

  std::unordered_map<const c10::StorageImpl*, Writes> writes_;
  bool incomplete_ = false;
};

}  // namespace pudica::hooks
