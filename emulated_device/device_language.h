// The language of kernels for one thread of one block: a kernel that goes round its elements with
// the grid's stride runs so as plain code.
#pragma once

#include <cstdint>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static thread_local

namespace pudica::emulated {

struct Index {
  unsigned x;
};

}  // namespace pudica::emulated

constexpr pudica::emulated::Index threadIdx{0};
constexpr pudica::emulated::Index blockIdx{0};
constexpr pudica::emulated::Index blockDim{1};
constexpr pudica::emulated::Index gridDim{1};

inline void __syncthreads() {}

inline std::uint32_t atomicCAS(std::uint32_t* place, std::uint32_t expected, std::uint32_t value) {
  const std::uint32_t before = *place;
  if (before == expected) *place = value;
  return before;
}

inline std::uint32_t atomicExch(std::uint32_t* place, std::uint32_t value) {
  const std::uint32_t before = *place;
  *place = value;
  return before;
}
