#include "cuda/bits_kernels.h"
#include "cuda/bits_lane.h"

namespace pudica::hooks {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;  // more work goes round: fewer atomics at the end
constexpr std::int64_t kWordElements = 64;
constexpr std::int64_t kGroupsOfWord = kWordElements / lane::kElements;

std::int64_t whole_words(std::int64_t count) { return (count + kWordElements - 1) / kWordElements; }

unsigned blocks_for(std::int64_t groups) {
  const std::int64_t blocks = (groups + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

bool is_aligned(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; }

// The first value that was put into `place`, which differs from `value`?
__device__ bool disagrees(std::uint32_t* place, std::uint32_t value) {
  const std::uint32_t before = atomicCAS(place, 0U, value);
  return before != 0 && before != value;
}

template <typename Word>
__global__ void pack_kernel(const Word* in, std::int64_t count, std::int64_t groups, bool aligned,
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
__global__ void unpack_kernel(const std::uint16_t* in, std::int64_t count, std::int64_t groups,
                              bool aligned, Word value, Word* out) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t group = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; group < groups;
       group += stride) {
    lane::store(lane::unpack(in[group], value), out, count, group, aligned);
  }
}

template <typename Word>
cudaError_t pack(const void* in, std::int64_t count, void* out, FoundBits* found,
                 cudaStream_t stream) {
  const cudaError_t cleared = cudaMemsetAsync(found, 0, sizeof(FoundBits), stream);
  if (cleared != cudaSuccess) return cleared;
  const std::int64_t groups = whole_words(count) * kGroupsOfWord;
  pack_kernel<<<blocks_for(groups), kThreads, 0, stream>>>(static_cast<const Word*>(in), count,
                                                           groups, is_aligned(in),
                                                           static_cast<std::uint16_t*>(out), found);
  return cudaGetLastError();
}

template <typename Word>
cudaError_t unpack(const void* in, std::int64_t count, std::uint32_t value, void* out,
                   cudaStream_t stream) {
  const std::int64_t groups = (count + lane::kElements - 1) / lane::kElements;
  unpack_kernel<<<blocks_for(groups), kThreads, 0, stream>>>(
      static_cast<const std::uint16_t*>(in), count, groups, is_aligned(out),
      static_cast<Word>(value), static_cast<Word*>(out));
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_pack(const void* in, std::int64_t count, std::int64_t item_bytes, void* out,
                        FoundBits* found, cudaStream_t stream) {
  if (item_bytes == 1) return pack<std::uint8_t>(in, count, out, found, stream);
  if (item_bytes == 2) return pack<std::uint16_t>(in, count, out, found, stream);
  return pack<std::uint32_t>(in, count, out, found, stream);
}

cudaError_t launch_unpack(const void* in, std::int64_t count, std::int64_t item_bytes,
                          std::uint32_t value, void* out, cudaStream_t stream) {
  if (item_bytes == 1) return unpack<std::uint8_t>(in, count, value, out, stream);
  if (item_bytes == 2) return unpack<std::uint16_t>(in, count, value, out, stream);
  return unpack<std::uint32_t>(in, count, value, out, stream);
}

}  // namespace pudica::hooks
