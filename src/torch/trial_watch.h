// TrialWatch: no trial of a layer writes what others have. Autograd's version counters do not see
// writes through `.data`, and once a parameter is written nobody knows what it was.
#pragma once

#include <string>
#include <unordered_set>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "torch/tape_dispatch.h"

namespace pudica::hooks {

// For one run of a layer, on its thread, under a TapeGuard. While it lives it is the thread's own,
// in order of a stack. Sees what operators say they write, not what is written through raw
// pointers.
class TrialWatch final : public OperatorObserver {
 public:
  TrialWatch();
  ~TrialWatch() override;
  TrialWatch(const TrialWatch&) = delete;
  TrialWatch& operator=(const TrialWatch&) = delete;
  // Null: no layer is tried.
  static TrialWatch* of_this_thread();

  // A tensor that must live for as long.
  void protect(const at::Tensor& tensor);
  // What was to be written, in words; empty: nothing.
  [[nodiscard]] const std::string& stopped_at() const { return stopped_at_; }

  // Throws c10::Error in place of an operator that writes what is protected.
  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
              torch::jit::Stack* stack) override;

 private:
  TrialWatch* before_;
  std::unordered_set<const c10::StorageImpl*> protected_;
  std::string stopped_at_;
};

}  // namespace pudica::hooks
