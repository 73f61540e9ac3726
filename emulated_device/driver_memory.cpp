// The driver: virtual memory management, on which expandable segments stand. Memory is charged
// where it is created; what is written to it does not outlive its mapping.
#include <algorithm>
#include <cstdint>
#include <map>

#include <cuda.h>

#include "emulated_device/address_space.h"
#include "emulated_device/costs.h"
#include "emulated_device/memory.h"
#include "emulated_device/state.h"
#include "emulated_device/streams.h"

using namespace pudica::emulated;

namespace {

struct Physical {
  std::size_t bytes;
  int device;
  int uses;  // its handle and its mappings
};

// Those below require the lock.
void drop_use(Physical* physical) {
  if (--physical->uses > 0) return;
  discharge(physical->device, physical->bytes);
  delete physical;
}

std::map<CUdeviceptr, Physical*>& mapped() {
  static auto* the = new std::map<CUdeviceptr, Physical*>;
  return *the;
}

void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(at); }

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = kGranuleBytes;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                     const CUmemAllocationProp* prop, unsigned long long) {
  if (bytes == 0 || bytes % kGranuleBytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const int device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? prop->location.id : 0;
  const Guard guard(lock_of_all());
  if (!charge(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<std::uintptr_t>(new Physical{bytes, device, 1});
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Guard guard(lock_of_all());
  drop_use(reinterpret_cast<Physical*>(handle));
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr,
                             unsigned long long) {
  void* pages = map_pages(bytes, Access::kNone);
  if (pages == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = reinterpret_cast<CUdeviceptr>(pages);
  const Guard guard(lock_of_all());
  note_range(pages, {bytes, Kind::kReserved, current_device()});
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr at, std::size_t bytes) {
  const Guard guard(lock_of_all());
  if (!forget_range(pointer(at))) return CUDA_ERROR_INVALID_VALUE;
  give_up_addresses(pointer(at), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr at, std::size_t bytes, std::size_t,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  const Guard guard(lock_of_all());
  auto* physical = reinterpret_cast<Physical*>(handle);
  if (bytes != physical->bytes || !mapped().emplace(at, physical).second) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++physical->uses;
  note_mapping(pointer(at), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc*, std::size_t) {
  set_access(pointer(at), bytes, Access::kReadWrite);
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, std::size_t bytes) {
  const Guard guard(lock_of_all());
  drop_pages(pointer(at), bytes);
  set_access(pointer(at), bytes, Access::kNone);
  auto& all = mapped();
  for (auto it = all.lower_bound(at); it != all.end() && it->first < at + bytes;) {
    drop_use(it->second);
    forget_mapping(pointer(it->first));
    it = all.erase(it);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr at, unsigned value, std::size_t count, CUstream stream) {
  const auto fill = [=] {
    if (!is_backed(pointer(at), count * sizeof value)) return fault("cuMemsetD32Async");
    std::fill_n(static_cast<unsigned*>(pointer(at)), count, value);
  };
  issue(stream, {set_us(count * sizeof value), fill});
  return CUDA_SUCCESS;
}

}  // extern "C"
