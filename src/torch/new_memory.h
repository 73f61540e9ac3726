// Telling what a layer computed from what nobody wrote. Operators save tensors that they have not
// filled (the seed of an attention without dropout, the padding of a softmax's sums): two runs of a
// layer differ there, and no backward reads it. Where both runs begin with memory of a known
// pattern, each its own, an element that still shows the one and the other was written by neither.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace pudica::hooks {

enum class MemoryPattern : std::uint8_t { kNone = 0, kForward = 0xA5, kAgain = 0x5A };

// What this thread's allocations begin with, on the CPU and on a metered device.
MemoryPattern pattern_of_new_memory();

// While it lives the thread's allocations begin with `pattern`. One thread's, in order of a stack.
class PatternGuard {
 public:
  explicit PatternGuard(MemoryPattern pattern);
  ~PatternGuard();
  PatternGuard(const PatternGuard&) = delete;
  PatternGuard& operator=(const PatternGuard&) = delete;

 private:
  MemoryPattern before_;
};

// Whether two tensors of one type are of one size and equal to the bit. Waits for the device.
bool same_bits(const at::Tensor& left, const at::Tensor& right);

// Whether two tensors of one type, of a forward under kForward and of a run under kAgain, are equal
// to the bit wherever one of the runs wrote. Waits for the device.
bool same_where_written(const at::Tensor& forward, const at::Tensor& again);

}  // namespace pudica::hooks
