#include "emulated_device/streams.h"

#include <algorithm>
#include <array>
#include <functional>
#include <mutex>
#include <queue>
#include <tuple>
#include <utility>

#include "emulated_device/counts.h"
#include "emulated_device/settings.h"
#include "emulated_device/state.h"

namespace pudica::emulated {
namespace {

using Lock = std::unique_lock<std::mutex>;

// What is issued and not done. All work takes time, so that what waits for other work ends after
// it, and begins with its end or later. What ends or begins at one time does not wait for each
// other: of two such the one issued last comes first, lest that of the calls be mistaken for an
// order.
struct Pending {
  double at_us;
  bool begins;
  std::uint64_t number;
  std::function<void()> act;
  bool is_host_function = false;

  friend bool operator>(const Pending& left, const Pending& right) {
    return std::tie(left.at_us, left.begins, right.number) >
           std::tie(right.at_us, right.begins, left.number);
  }
};
constexpr double kLeastUs = 1e-3;

// Requires, of all members and functions here: the lock.
struct Timeline {
  double host_us = 0;
  std::uint64_t last_number = 0;
  std::priority_queue<Pending, std::vector<Pending>, std::greater<>> pending;
  std::array<Stream, kMostDevices> null_streams;
  std::vector<Stream*> streams;
};
Timeline& timeline() {
  static auto* the = [] {
    auto* made = new Timeline;
    for (int device = 0; device < kMostDevices; ++device) {
      Stream& stream = made->null_streams[static_cast<std::size_t>(device)];
      stream.device = device;
      stream.ordinal = static_cast<std::uint64_t>(device);
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

// From 0 to the setting, drawn by the stream's number and the work's: other streams and threads do
// not change it.
double lag_us(Stream& stream) {
  if (settings().lag_us == 0) return 0;
  // splitmix64: public domain, Sebastiano Vigna.
  std::uint64_t x =
      settings().seed + 0x9E3779B97F4A7C15U * (++stream.issued + (stream.ordinal << 32U));
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  x ^= x >> 31U;
  constexpr double kOne = 18446744073709551616.0;
  return settings().lag_us * static_cast<double>(x) / kOne;
}

void run(Lock& lock, const std::function<void()>& act, bool is_host_function) {
  if (!act) return;
  if (is_host_function) lock.unlock();
  act();
  if (is_host_function) lock.lock();
}

// The host gets there, and so has the device.
void advance(Lock& lock, double to_us) {
  Timeline& t = timeline();
  t.host_us = std::max(t.host_us, to_us);
  while (!t.pending.empty() && t.pending.top().at_us <= t.host_us) {
    const Pending next = t.pending.top();
    t.pending.pop();
    run(lock, next.act, next.is_host_function);
  }
}

bool has_come_to(double done_us) {
  if (settings().order == Order::kIssue) return true;
  Lock lock(lock_of_all());
  advance(lock, timeline().host_us + settings().query_us);
  return done_us <= timeline().host_us;
}

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
  static std::uint64_t last_ordinal = kMostDevices;
  made->ordinal = ++last_ordinal;
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
  Lock lock(lock_of_all());
  Timeline& t = timeline();
  advance(lock, t.host_us + settings().call_us);
  if (stream.capture != nullptr) {
    stream.capture->nodes.push_back(std::move(work));
    return;
  }
  const double begin_us = ready_us(stream);
  stream.done_us = begin_us + std::max(kLeastUs, work.microseconds) + lag_us(stream);
  busy_us().fetch_add(work.microseconds, std::memory_order_relaxed);
  if (settings().order == Order::kIssue) {
    run(lock, work.begin, false);
    run(lock, work.act, work.is_host_function);
    return;
  }
  if (work.begin) t.pending.push({begin_us, true, ++t.last_number, std::move(work.begin)});
  if (work.act) {
    t.pending.push(
        {stream.done_us, false, ++t.last_number, std::move(work.act), work.is_host_function});
  }
}

void record(Event& event, cudaStream_t handle) {
  const Stream& stream = stream_of(handle);
  Lock lock(lock_of_all());
  advance(lock, timeline().host_us + settings().call_us);
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

bool is_done(const Event& event) { return has_come_to(event.done_us); }
bool is_done(cudaStream_t stream) { return has_come_to(stream_of(stream).done_us); }

void join(const Event& event) {
  Lock lock(lock_of_all());
  advance(lock, event.done_us);
}

void join(cudaStream_t stream) {
  Lock lock(lock_of_all());
  advance(lock, stream_of(stream).done_us);
}

void join_device(int device) {
  Lock lock(lock_of_all());
  double done_us = null_stream(device).done_us;
  for (const Stream* stream : timeline().streams) {
    if (stream->device == device) done_us = std::max(done_us, stream->done_us);
  }
  advance(lock, done_us);
}

void spend(double microseconds) {
  Lock lock(lock_of_all());
  advance(lock, timeline().host_us + microseconds);
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
