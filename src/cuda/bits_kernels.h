// The kernels of bits on a device (torch/bits.h): asynchronous, on the caller's stream and device.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace pudica::hooks {

// What packing found, in the device's memory.
struct FoundBits {
  std::uint32_t value;    // the elements that are not 0; 0: there is none
  std::uint32_t strange;  // 1: there is more than one value beside 0
};

// `out`: a bit an element, whole words of 64. `found` is written anew. Reads each element once.
// item_bytes: 1, 2 or 4. What the launch returned.
cudaError_t launch_pack(const void* in, std::int64_t count, std::int64_t item_bytes, void* out,
                        FoundBits* found, cudaStream_t stream);
cudaError_t launch_unpack(const void* in, std::int64_t count, std::int64_t item_bytes,
                          std::uint32_t value, void* out, cudaStream_t stream);

}  // namespace pudica::hooks
