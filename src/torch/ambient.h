// Ambient: the thread's state that a layer's forward depends on beside its inputs.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/Tensor.h>
#include <ATen/core/MT19937RNGEngine.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "torch/global_flags.h"

namespace pudica::hooks {

// Random state (CPU, and one CUDA device where the layer runs there), autocast state, modes that
// change what Python's functions do, and what of the process chooses kernels. The CPU
// generator is copied by value: no tensor, no allocation through the metered allocator.
class Ambient {
 public:
  static Ambient capture(c10::Device device);
  // Makes this the thread's state.
  void apply() const;
  // What was captured drew no random number of the CPU's since: its state is not put back. It is
  // the process's, and other threads may draw meanwhile.
  void forget_unused_random_state();
  void forget_random_state() { cpu_engine_.reset(); }
  [[nodiscard]] bool has_random_state() const { return cpu_engine_.has_value(); }
  [[nodiscard]] const GlobalFlags& flags() const { return flags_; }
  [[nodiscard]] bool autocast() const { return autocast_[0].enabled || autocast_[1].enabled; }

 private:
  struct Autocast {
    bool enabled = false;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
  };

  c10::Device device_ = c10::Device(c10::DeviceType::CPU);
  std::optional<at::mt19937> cpu_engine_;  // none: not to be put back
  std::optional<float> next_float_normal_;
  std::optional<double> next_double_normal_;
  at::Tensor device_random_state_;  // CUDA only: seed and offset, 16 bytes
  Autocast autocast_[2];            // CPU, CUDA
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
