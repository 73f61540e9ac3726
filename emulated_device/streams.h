// Streams, events and captures, and the virtual clock: each stream knows when what was issued to it
// is done, the host when it is itself. No time of the machine's enters.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

namespace pudica::emulated {

// Something that a stream does, when it gets there.
struct Work {
  double microseconds = 0;
  std::function<void()> act = {};  // at its end; empty: kernels do nothing. Called under the lock,
  bool is_host_function = false;   // but for the program's own
  // At its begin, where the device is at it for a while: whoever comes in between sees half.
  std::function<void()> begin = {};
};

// What is issued to capturing streams becomes the graph's nodes, in the order of the calls.
struct Capture {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  unsigned long long id = 0;
  bool spoiled = false;
  bool ended = false;
  std::vector<Work> nodes;
};

struct Stream {
  int device = 0;
  int priority = 0;
  bool waits_for_null = true;  // not made with cudaStreamNonBlocking
  double done_us = 0;          // when all that was issued is done
  std::uint64_t ordinal = 0;   // of its making, and of what was issued to it: for the lag
  std::uint64_t issued = 0;
  Capture* capture = nullptr;  // captures are kept for good: events point to them
};

struct Event {
  double done_us = 0;
  bool recorded = false;
  bool timed = true;
  Capture* capture = nullptr;
};

// The null stream of the current device for handles 0 to 2.
Stream& stream_of(cudaStream_t handle);
inline Event& event_of(cudaEvent_t handle) { return *reinterpret_cast<Event*>(handle); }

cudaStream_t make_stream(bool waits_for_null, int priority);
void destroy_stream(cudaStream_t handle);

// All below take the lock.
void issue(cudaStream_t stream, Work work);
void record(Event& event, cudaStream_t stream);
// The stream goes on when the event is done.
void wait_for(cudaStream_t stream, const Event& event);
// Asking takes the host's time, so that who asks again and again comes to an end.
bool is_done(const Event& event);
bool is_done(cudaStream_t stream);
// The host goes on when it is done.
void join(const Event& event);
void join(cudaStream_t stream);
void join_device(int device);
// Where the host is.
double host_us();
// It does something of its own for so long.
void spend(double microseconds);

// Streams that took part are as before. Requires: the lock.
void leave_capture(const Capture& capture);

// Captures. What one forbids fails and spoils it.
bool spoils_a_capture();
cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t end_capture(cudaStream_t stream, const Capture*& ended);
struct CaptureState {
  cudaStreamCaptureStatus status;
  unsigned long long id;
};
CaptureState capture_state(cudaStream_t stream);
// The calling thread's mode; returns the one before.
cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode);

}  // namespace pudica::emulated
