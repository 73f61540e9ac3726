// The state of the generators that operators draw from: the CPU's, and a device's own.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/Tensor.h>
#include <ATen/core/MT19937RNGEngine.h>
#include <c10/core/Device.h>

namespace pudica::hooks {

// Enough of it to see that something drew from one, read around every operator of a tape.
struct RandomMark {
  int left = 0;
  std::uint32_t next = 0;
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  std::uint64_t device_offset = 0;

  static RandomMark now(c10::Device device);
  bool operator==(const RandomMark&) const = default;
  [[nodiscard]] bool is_same_on_cpu(const RandomMark& other) const {
    return left == other.left && next == other.next && first == other.first &&
           second == other.second;
  }
};

// All of it, to be put back. The CPU generator is copied by value: no tensor, no allocation through
// the metered allocator.
class RandomState {
 public:
  static RandomState capture(c10::Device device);
  void apply() const;
  // What was captured drew no random number of the CPU's since: its state is not put back. It is
  // the process's, and other threads may draw meanwhile.
  void forget_unused();
  void forget() { cpu_engine_.reset(); }
  // Of the CPU's generator.
  [[nodiscard]] bool is_known() const { return cpu_engine_.has_value(); }

 private:
  c10::Device device_ = c10::Device(c10::DeviceType::CPU);
  std::optional<at::mt19937> cpu_engine_;  // none: not to be put back
  std::optional<float> next_float_normal_;
  std::optional<double> next_double_normal_;
  at::Tensor device_state_;  // CUDA only: seed and offset, 16 bytes
};

}  // namespace pudica::hooks
