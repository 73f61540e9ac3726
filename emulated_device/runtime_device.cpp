// The runtime: devices and their properties, as the card has them.
#include <algorithm>
#include <cstdint>
#include <cstdio>

#include <cuda_runtime_api.h>

#include "emulated_device/costs.h"
#include "emulated_device/settings.h"
#include "emulated_device/state.h"
#include "emulated_device/streams.h"
#include "emulated_device/torch_hook.h"

using namespace pudica::emulated;

namespace {

constexpr int kWarp = 32;
constexpr int kBlockDepth = 64;
constexpr int kRegisters = 65536;
constexpr int kConstantBytes = 65536;
constexpr int kCopyEngines = 3;

bool is_device(int device) { return device >= 0 && device < settings().devices; }

void fill_card(cudaDeviceProp& prop) {
  const Card& card = settings().card;
  const Limits limits = limits_of(card.capability);
  std::snprintf(prop.name, sizeof prop.name, "%s (emulated)", card.title);
  prop.totalGlobalMem = card.memory_bytes;
  prop.major = card.capability / 10;
  prop.minor = card.capability % 10;
  prop.multiProcessorCount = card.processors;
  prop.memoryBusWidth = card.bus_bits;
  prop.l2CacheSize = card.l2_mib << 20;
  prop.sharedMemPerMultiprocessor = static_cast<std::size_t>(limits.shared_bytes);
  prop.sharedMemPerBlockOptin = static_cast<std::size_t>(limits.shared_optin_bytes);
  prop.maxThreadsPerMultiProcessor = limits.threads;
  prop.maxBlocksPerMultiProcessor = limits.blocks;
  prop.clusterLaunch = card.capability >= 90 ? 1 : 0;
}

// What all cards of these capabilities share.
void fill_common(cudaDeviceProp& prop) {
  prop.sharedMemPerBlock = kBlockSharedBytes;
  prop.reservedSharedMemPerBlock = kReservedSharedBytes;
  prop.regsPerBlock = prop.regsPerMultiprocessor = kRegisters;
  prop.warpSize = kWarp;
  prop.memPitch = INT32_MAX;
  prop.maxThreadsPerBlock = kBlockThreads;
  prop.maxThreadsDim[0] = prop.maxThreadsDim[1] = kBlockThreads;
  prop.maxThreadsDim[2] = kBlockDepth;
  prop.maxGridSize[0] = INT32_MAX;
  prop.maxGridSize[1] = prop.maxGridSize[2] = kGridSide;
  prop.totalConstMem = kConstantBytes;
  prop.textureAlignment = prop.surfaceAlignment = 512;
  prop.texturePitchAlignment = 32;
  prop.canMapHostMemory = prop.concurrentKernels = prop.ECCEnabled = 1;
  prop.asyncEngineCount = kCopyEngines;
  prop.unifiedAddressing = prop.managedMemory = prop.streamPrioritiesSupported = 1;
  prop.globalL1CacheSupported = prop.localL1CacheSupported = 1;
  prop.computePreemptionSupported = prop.cooperativeLaunch = 1;
  prop.hostRegisterSupported = prop.memoryPoolsSupported = 1;
}

int attribute_of(const cudaDeviceProp& prop, cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      return prop.maxThreadsPerBlock;
    case cudaDevAttrMaxBlockDimX:
      return prop.maxThreadsDim[0];
    case cudaDevAttrMaxBlockDimY:
      return prop.maxThreadsDim[1];
    case cudaDevAttrMaxBlockDimZ:
      return prop.maxThreadsDim[2];
    case cudaDevAttrMaxGridDimX:
      return prop.maxGridSize[0];
    case cudaDevAttrMaxGridDimY:
      return prop.maxGridSize[1];
    case cudaDevAttrMaxGridDimZ:
      return prop.maxGridSize[2];
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return static_cast<int>(prop.sharedMemPerBlock);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(prop.sharedMemPerBlockOptin);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return static_cast<int>(prop.sharedMemPerMultiprocessor);
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return static_cast<int>(prop.reservedSharedMemPerBlock);
    case cudaDevAttrMaxRegistersPerBlock:
      return prop.regsPerBlock;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return prop.regsPerMultiprocessor;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return prop.maxThreadsPerMultiProcessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return prop.maxBlocksPerMultiProcessor;
    case cudaDevAttrWarpSize:
      return prop.warpSize;
    case cudaDevAttrMultiProcessorCount:
      return prop.multiProcessorCount;
    case cudaDevAttrComputeCapabilityMajor:
      return prop.major;
    case cudaDevAttrComputeCapabilityMinor:
      return prop.minor;
    case cudaDevAttrL2CacheSize:
      return prop.l2CacheSize;
    case cudaDevAttrGlobalMemoryBusWidth:
      return prop.memoryBusWidth;
    case cudaDevAttrAsyncEngineCount:
      return prop.asyncEngineCount;
    case cudaDevAttrTotalConstantMemory:
      return static_cast<int>(prop.totalConstMem);
    case cudaDevAttrPciBusId:
      return prop.pciBusID;
    case cudaDevAttrClusterLaunch:
      return prop.clusterLaunch;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  change_torch_once();
  *count = settings().devices;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return say(cudaErrorInvalidDevice);
  set_current_device(device);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  if (!is_device(device)) return say(cudaErrorInvalidDevice);
  *prop = cudaDeviceProp{};
  fill_common(*prop);
  fill_card(*prop);
  prop->uuid.bytes[sizeof prop->uuid.bytes - 1] = static_cast<char>(device + 1);
  prop->pciBusID = device + 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp prop;
  if (cudaGetDeviceProperties(&prop, device) != cudaSuccess) return last_error();
  *value = attribute_of(prop, attribute);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  constexpr int kGreatest = -5;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = kGreatest;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaDeviceSynchronize() {
  if (spoils_a_capture()) return say(cudaErrorStreamCaptureUnsupported);
  join_device(current_device());
  return say(cudaSuccess);
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

}  // extern "C"
