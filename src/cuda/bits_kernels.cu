// The kernels of bits on a device. Embedded in the library as text and compiled by NVRTC for the
// device that is there (bits_kernels.cpp), so that no build needs a compiler for devices.
#include "cuda/bits_lane.h"

namespace pudica::hooks {
namespace {

// The first value that was put into `place`, which differs from `value`?
__device__ bool disagrees(std::uint32_t* place, std::uint32_t value) {
  const std::uint32_t before = atomicCAS(place, 0U, value);
  return before != 0 && before != value;
}

template <typename Word>
__device__ void pack(const Word* in, std::int64_t count, std::int64_t groups, bool aligned,
                     std::uint16_t* out, FoundBits* found) {
  __shared__ FoundBits of_block;
  if (threadIdx.x == 0) of_block = FoundBits{0, 0};
  __syncthreads();
  Word value = 0;
  bool strange = false;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t group = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; group < groups;
       group += stride) {
    out[group] = lane::pack(lane::load(in, count, group, aligned), value, strange);
  }
  if (value != 0 && disagrees(&of_block.value, value)) strange = true;
  if (strange) atomicExch(&of_block.strange, 1U);
  __syncthreads();
  if (threadIdx.x != 0) return;
  const bool differs = of_block.value != 0 && disagrees(&found->value, of_block.value);
  if (differs || of_block.strange != 0) atomicExch(&found->strange, 1U);
}

template <typename Word>
__device__ void unpack(const std::uint16_t* in, std::int64_t count, std::int64_t groups,
                       bool aligned, Word value, Word* out) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t group = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; group < groups;
       group += stride) {
    lane::store(lane::unpack(in[group], value), out, count, group, aligned);
  }
}

}  // namespace
}  // namespace pudica::hooks

// The entries by which the host finds them; the number is that of an element's bytes.
#define PUDICA_ENTRIES(bytes, Word)                                                               \
  extern "C" __global__ void pudica_pack_##bytes(                                                 \
      const Word* in, std::int64_t count, std::int64_t groups, bool aligned, std::uint16_t* out,  \
      pudica::hooks::FoundBits* found) {                                                          \
    pudica::hooks::pack<Word>(in, count, groups, aligned, out, found);                            \
  }                                                                                               \
  extern "C" __global__ void pudica_unpack_##bytes(const std::uint16_t* in, std::int64_t count,   \
                                                   std::int64_t groups, bool aligned, Word value, \
                                                   Word* out) {                                   \
    pudica::hooks::unpack<Word>(in, count, groups, aligned, value, out);                          \
  }

PUDICA_ENTRIES(1, std::uint8_t)
PUDICA_ENTRIES(2, std::uint16_t)
PUDICA_ENTRIES(4, std::uint32_t)
