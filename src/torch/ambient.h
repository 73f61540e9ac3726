// Ambient: the thread's state that a layer's forward depends on beside its inputs.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "torch/global_flags.h"
#include "torch/random_state.h"

namespace pudica::hooks {

// Random state (CPU, and one CUDA device where the layer runs there), autocast state, modes that
// change what Python's functions do, and what of the process chooses kernels.
class Ambient {
 public:
  static Ambient capture(c10::Device device);
  // Makes this the thread's state.
  void apply() const;
  void forget_unused_random_state() { random_.forget_unused(); }
  void forget_random_state() { random_.forget(); }
  [[nodiscard]] bool has_random_state() const { return random_.is_known(); }
  [[nodiscard]] const GlobalFlags& flags() const { return flags_; }
  [[nodiscard]] bool autocast() const { return autocast_[0].enabled || autocast_[1].enabled; }

 private:
  struct Autocast {
    bool enabled = false;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
  };

  RandomState random_;
  Autocast autocast_[2];  // CPU, CUDA
  bool autocast_cache_ = true;
  at::impl::PythonTorchFunctionTLS function_modes_;
  GlobalFlags flags_;
};

// Applies an ambient for its lifetime and puts the thread's own back. Raises the autocast nesting
// so that weight casts made inside are cleared with it: they would otherwise outlive the
// optimizer's step and be stale in the next one.
class AmbientGuard {
 public:
  explicit AmbientGuard(const Ambient& ambient, c10::Device device);
  ~AmbientGuard();
  AmbientGuard(const AmbientGuard&) = delete;
  AmbientGuard& operator=(const AmbientGuard&) = delete;

 private:
  Ambient before_;
};

}  // namespace pudica::hooks
