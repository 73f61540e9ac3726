// The driver: what c10's DriverAPI and libcaffe2_nvrtc ask for, memory apart.
#include <dlfcn.h>
#include <string>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "emulated_device/address_space.h"
#include "emulated_device/settings.h"
#include "emulated_device/state.h"

using namespace pudica::emulated;

namespace {

CUresult unsupported() {
  log_once("a driver entry point");
  return CUDA_ERROR_NOT_SUPPORTED;
}

// One context a device, known by an address that is nobody's.
CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(kPageBytes * static_cast<std::size_t>(device + 1));
}
int device_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<std::size_t>(context) / kPageBytes) - 1;
}

}  // namespace

extern "C" {

// The newest version of the name that this library has.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  Dl_info self;
  *function = nullptr;
  if (dladdr(reinterpret_cast<void*>(&unsupported), &self) != 0) {
    void* library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *function = dlsym(library, (std::string(name) + "_v2").c_str());
    if (*function == nullptr) *function = dlsym(library, name);
    if (library != nullptr) dlclose(library);
  }
  if (*function == nullptr) *function = reinterpret_cast<void*>(&unsupported);
  if (status != nullptr) *status = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "error of the emulated driver";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = settings().maps_pages ? 1 : 0;
      break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
      *value = 0;
      break;
    default:
      cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device);
  }
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  if (flags != nullptr) *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = context_of(device);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = context_of(current_device());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (context != nullptr && cudaSetDevice(device_of(context)) != cudaSuccess) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
