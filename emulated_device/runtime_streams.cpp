// The runtime: streams and events.
#include <algorithm>

#include <cuda_runtime_api.h>

#include "emulated_device/state.h"
#include "emulated_device/streams.h"

using namespace pudica::emulated;

namespace {

constexpr int kGreatestPriority = -5;

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  *stream =
      make_stream((flags & cudaStreamNonBlocking) == 0, std::clamp(priority, kGreatestPriority, 0));
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  destroy_stream(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream_of(stream).priority;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (spoils_a_capture()) return say(cudaErrorStreamCaptureUnsupported);
  return say(is_done(stream) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (spoils_a_capture()) return say(cudaErrorStreamCaptureUnsupported);
  join(stream);
  return say(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  wait_for(stream, event_of(event));
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned) {
  issue(stream, {0, [=] { callback(stream, cudaSuccess, data); }, true});
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  issue(stream, {0, [=] { function(data); }, true});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  auto* made = new Event;
  made->timed = (flags & cudaEventDisableTiming) == 0;
  *event = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &event_of(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  record(event_of(event), stream);
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (spoils_a_capture()) return say(cudaErrorStreamCaptureUnsupported);
  if (event_of(event).capture != nullptr) return say(cudaErrorCapturedEvent);
  return say(is_done(event_of(event)) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (spoils_a_capture()) return say(cudaErrorStreamCaptureUnsupported);
  if (event_of(event).capture != nullptr) return say(cudaErrorCapturedEvent);
  join(event_of(event));
  return say(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Event& from = event_of(begin);
  const Event& to = event_of(end);
  if (!from.recorded || !to.recorded || !from.timed || !to.timed) {
    return say(cudaErrorInvalidResourceHandle);
  }
  if (!is_done(from) || !is_done(to)) return say(cudaErrorNotReady);
  constexpr double kMillisecondsPerMicrosecond = 1e-3;
  *milliseconds = static_cast<float>(kMillisecondsPerMicrosecond * (to.done_us - from.done_us));
  return cudaSuccess;
}

}  // extern "C"
