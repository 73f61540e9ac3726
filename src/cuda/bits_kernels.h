// The kernels of bits on a device (torch/bits.h): asynchronous, on the caller's stream and device.
#pragma once

#include <cstdint>
#include <span>

#include <cuda_runtime_api.h>

#include "base/embedded.h"
#include "cuda/bits_lane.h"

namespace pudica::hooks {

// Their source, as RuntimeCompiler takes it.
std::span<const EmbeddedFile> bits_source();

// What is packed: `count` elements of 1, 2 or 4 bytes.
struct Items {
  std::int64_t count = 0;
  std::int64_t item_bytes = 0;
};

// The first launch on a device waits until its kernels are compiled and loaded. Both throw
// c10::Error where that fails, every time, and where the launch does. Thread-safe.
//
// `out`: a bit an element, whole words of 64. `found` is written anew. Reads each element once.
void launch_pack(const void* in, Items items, void* out, FoundBits* found, cudaStream_t stream);
void launch_unpack(const void* in, Items items, std::uint32_t value, void* out,
                   cudaStream_t stream);

}  // namespace pudica::hooks
