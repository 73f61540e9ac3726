#include "emulated_device/streams.h"

#include <algorithm>
#include <array>
#include <utility>

#include "emulated_device/settings.h"
#include "emulated_device/state.h"

namespace pudica::emulated {
namespace {

// Requires, of all members and functions here: the lock.
struct Timeline {
  double host_us = 0;
  std::array<Stream, kMostDevices> null_streams;
  std::vector<Stream*> streams;
};
Timeline& timeline() {
  static auto* the = [] {
    auto* made = new Timeline;
    for (int device = 0; device < kMostDevices; ++device) {
      made->null_streams[static_cast<std::size_t>(device)].device = device;
    }
    return made;
  }();
  return *the;
}

Stream& null_stream(int device) {
  return timeline().null_streams[static_cast<std::size_t>(device)];
}

bool is_null(const Stream& stream) { return &stream == &null_stream(stream.device); }

// The null stream and those that were not made to ignore it wait for each other.
double ready_us(const Stream& stream) {
  double ready = std::max(timeline().host_us, stream.done_us);
  if (is_null(stream)) {
    for (const Stream* other : timeline().streams) {
      if (other->device == stream.device && other->waits_for_null) {
        ready = std::max(ready, other->done_us);
      }
    }
  } else if (stream.waits_for_null) {
    ready = std::max(ready, null_stream(stream.device).done_us);
  }
  return ready;
}

void join_until(double done_us) { timeline().host_us = std::max(timeline().host_us, done_us); }

}  // namespace

Stream& stream_of(cudaStream_t handle) {
  constexpr std::uintptr_t kLastSpecial = 2;  // 0, cudaStreamLegacy, cudaStreamPerThread
  if (reinterpret_cast<std::uintptr_t>(handle) <= kLastSpecial) {
    return null_stream(current_device());
  }
  return *reinterpret_cast<Stream*>(handle);
}

cudaStream_t make_stream(bool waits_for_null, int priority) {
  auto* made = new Stream;
  made->device = current_device();
  made->priority = priority;
  made->waits_for_null = waits_for_null;
  const Guard guard(lock_of_all());
  timeline().streams.push_back(made);
  return reinterpret_cast<cudaStream_t>(made);
}

void destroy_stream(cudaStream_t handle) {
  const Guard guard(lock_of_all());
  auto& all = timeline().streams;
  // Its memory stays: a late use of the handle is no crash of ours.
  all.erase(std::remove(all.begin(), all.end(), &stream_of(handle)), all.end());
}

void issue(cudaStream_t handle, Work work) {
  Stream& stream = stream_of(handle);
  std::function<void()> act;
  {
    const Guard guard(lock_of_all());
    timeline().host_us += settings().call_us;
    if (stream.capture != nullptr) {
      stream.capture->nodes.push_back(std::move(work));
      return;
    }
    stream.done_us = ready_us(stream) + work.microseconds;
    act = std::move(work.act);
  }
  if (act) act();
}

void record(Event& event, cudaStream_t handle) {
  const Stream& stream = stream_of(handle);
  const Guard guard(lock_of_all());
  timeline().host_us += settings().call_us;
  event.recorded = true;
  event.capture = stream.capture;
  event.done_us = ready_us(stream);
}

void wait_for(cudaStream_t handle, const Event& event) {
  Stream& stream = stream_of(handle);
  const Guard guard(lock_of_all());
  const bool captured = event.capture != nullptr && !event.capture->ended;
  if (captured && stream.capture == nullptr) stream.capture = event.capture;
  stream.done_us = std::max(stream.done_us, event.done_us);
}

// Work is done when it is issued: only its times are later.
bool is_done(const Event& /*event*/) { return true; }
bool is_done(cudaStream_t /*stream*/) { return true; }

void join(const Event& event) {
  const Guard guard(lock_of_all());
  join_until(event.done_us);
}

void join(cudaStream_t stream) {
  const Guard guard(lock_of_all());
  join_until(stream_of(stream).done_us);
}

void join_device(int device) {
  const Guard guard(lock_of_all());
  join_until(null_stream(device).done_us);
  for (const Stream* stream : timeline().streams) {
    if (stream->device == device) join_until(stream->done_us);
  }
}

void leave_capture(const Capture& capture) {
  for (Stream* stream : timeline().streams) {
    if (stream->capture == &capture) stream->capture = nullptr;
  }
}

double host_us() {
  const Guard guard(lock_of_all());
  return timeline().host_us;
}

}  // namespace pudica::emulated
