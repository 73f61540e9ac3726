// The runtime: memory of the device and of the host, and copies between them.
#include <algorithm>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "emulated_device/address_space.h"
#include "emulated_device/copies.h"
#include "emulated_device/memory.h"
#include "emulated_device/settings.h"
#include "emulated_device/state.h"
#include "emulated_device/streams.h"

using namespace pudica::emulated;

extern "C" {

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Guard guard(lock_of_all());
  const Card& card = settings().card;
  const std::size_t taken = card.context_bytes + used_bytes(current_device());
  *total = card.memory_bytes;
  *free = card.memory_bytes - std::min(card.memory_bytes, taken);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** at, std::size_t bytes) {
  if (spoils_a_capture()) return say(cudaErrorStreamCaptureUnsupported);
  return say(allocate(at, bytes, Kind::kDevice));
}

// Waits for all that the device does, as the device's own.
cudaError_t cudaFree(void* at) {
  if (spoils_a_capture()) return say(cudaErrorStreamCaptureUnsupported);
  if (const auto range = range_of(at)) join_device(range->device);
  return say(release(at, Kind::kDevice));
}

// What other streams have yet to free is waited for where it is needed.
cudaError_t cudaMallocAsync(void** at, std::size_t bytes, cudaStream_t) {
  cudaError_t error = allocate(at, bytes, Kind::kDevice);
  if (error == cudaErrorMemoryAllocation) {
    join_device(current_device());
    error = allocate(at, bytes, Kind::kDevice);
  }
  return say(error);
}

cudaError_t cudaFreeAsync(void* at, cudaStream_t stream) {
  const auto range = range_of(at);
  if (at != nullptr && (!range || range->kind != Kind::kDevice)) return say(cudaErrorInvalidValue);
  issue(stream, {0, [at] { release_locked(at, Kind::kDevice); }});
  return say(cudaSuccess);
}

cudaError_t cudaHostAlloc(void** at, std::size_t bytes, unsigned) {
  if (spoils_a_capture()) return say(cudaErrorStreamCaptureUnsupported);
  return say(allocate(at, bytes, Kind::kPinned));
}

cudaError_t cudaMallocHost(void** at, std::size_t bytes) { return cudaHostAlloc(at, bytes, 0); }

cudaError_t cudaFreeHost(void* at) {
  if (spoils_a_capture()) return say(cudaErrorStreamCaptureUnsupported);
  if (const auto range = range_of(at)) join_device(range->device);
  return say(release(at, Kind::kPinned));
}

cudaError_t cudaHostRegister(void* at, std::size_t bytes, unsigned) {
  const Guard guard(lock_of_all());
  note_range(at, {bytes, Kind::kRegistered, current_device()});
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* at) { return say(release(at, Kind::kRegistered)); }

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const auto range = range_of(pointer);
  *attributes = cudaPointerAttributes{};
  if (!range) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = const_cast<void*>(pointer);
    return cudaSuccess;
  }
  const bool host = range->kind == Kind::kPinned || range->kind == Kind::kRegistered;
  attributes->type = host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = range->device;
  attributes->devicePointer = const_cast<void*>(pointer);
  attributes->hostPointer = host ? const_cast<void*>(pointer) : nullptr;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return issue_copy({.to = to, .from = from, .bytes = bytes}, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (spoils_a_capture()) return say(cudaErrorStreamCaptureUnsupported);
  issue_copy({.to = to, .from = from, .bytes = bytes}, nullptr);
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                cudaStream_t stream) {
  return issue_copy({.to = to, .from = from, .bytes = bytes}, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind, cudaStream_t stream) {
  return issue_copy({to, from, width, height, to_pitch, from_pitch}, stream);
}

cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t stream) {
  return issue_set(at, value, bytes, stream);
}

cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
  return issue_set(at, value, bytes, nullptr);
}

// One pool a device, without a cache of its own: what is freed is the device's again.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = reinterpret_cast<cudaMemPool_t>(kPageBytes * static_cast<std::size_t>(device + 1));
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  const Guard guard(lock_of_all());
  *static_cast<std::uint64_t*>(value) = used_bytes(current_device());
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, std::size_t) {
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }

}  // extern "C"
