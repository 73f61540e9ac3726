// Captures: what is issued to a stream that captures is noted, and what would synchronise or
// allocate meanwhile is forbidden, to the threads that its mode names.
#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "emulated_device/state.h"
#include "emulated_device/streams.h"

namespace pudica::emulated {
namespace {

std::atomic<int> captures_under_way{0};
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

// Under the lock, like what it points to.
struct Captures {
  std::vector<Capture*> under_way;
  unsigned long long last_id = 0;
};
Captures& captures() {
  static auto* the = new Captures;
  return *the;
}

bool is_forbidden_by(const Capture& capture) {
  if (capture.thread == std::this_thread::get_id()) {
    return capture.mode != cudaStreamCaptureModeRelaxed;
  }
  return capture.mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
}

}  // namespace

bool spoils_a_capture() {
  if (captures_under_way.load() == 0 || thread_mode == cudaStreamCaptureModeRelaxed) return false;
  const Guard guard(lock_of_all());
  bool found = false;
  for (Capture* capture : captures().under_way) {
    if (is_forbidden_by(*capture)) capture->spoiled = found = true;
  }
  return found;
}

cudaError_t begin_capture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  Stream& stream = stream_of(handle);
  const Guard guard(lock_of_all());
  if (stream.capture != nullptr || handle == nullptr) return cudaErrorIllegalState;
  stream.capture = new Capture{mode, std::this_thread::get_id(), ++captures().last_id};
  captures().under_way.push_back(stream.capture);
  ++captures_under_way;
  return cudaSuccess;
}

cudaError_t end_capture(cudaStream_t handle, const Capture*& ended) {
  Stream& stream = stream_of(handle);
  const Guard guard(lock_of_all());
  ended = nullptr;
  Capture* capture = stream.capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  capture->ended = true;
  leave_capture(*capture);
  auto& all = captures().under_way;
  all.erase(std::remove(all.begin(), all.end(), capture), all.end());
  --captures_under_way;
  if (capture->spoiled) return cudaErrorStreamCaptureInvalidated;
  ended = capture;
  return cudaSuccess;
}

CaptureState capture_state(cudaStream_t handle) {
  const Guard guard(lock_of_all());
  const Capture* capture = stream_of(handle).capture;
  if (capture == nullptr) return {cudaStreamCaptureStatusNone, 0};
  return {capture->spoiled ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive,
          capture->id};
}

cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

}  // namespace pudica::emulated
