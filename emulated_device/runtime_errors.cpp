// The runtime: errors, in the driver's words where torch or users look for them.
#include <cuda_runtime_api.h>

#include "emulated_device/state.h"

using namespace pudica::emulated;

namespace {

struct Words {
  cudaError_t error;
  const char* name;
  const char* text;
};

// All that this runtime says, and then what it has no words for.
constexpr Words kWords[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorMissingConfiguration, "cudaErrorMissingConfiguration",
     "__global__ function call is not configured"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorNotSupported, "cudaErrorNotSupported",
     "operation not supported (by the emulated device)"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorUnknown, "cudaErrorUnknown", "error of the emulated device"},
};

const Words& words_for(cudaError_t error) {
  const Words* words = kWords;
  while (words->error != error && words->error != cudaErrorUnknown) ++words;
  return *words;
}

}  // namespace

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error();
  forget_error();
  return error;
}

cudaError_t cudaPeekAtLastError() { return last_error(); }

const char* cudaGetErrorString(cudaError_t error) { return words_for(error).text; }

const char* cudaGetErrorName(cudaError_t error) { return words_for(error).name; }

}  // extern "C"
