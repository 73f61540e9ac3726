#include "emulated_device/copies.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "emulated_device/address_space.h"
#include "emulated_device/costs.h"
#include "emulated_device/counts.h"
#include "emulated_device/memory.h"
#include "emulated_device/settings.h"
#include "emulated_device/state.h"
#include "emulated_device/streams.h"

namespace pudica::emulated {
namespace {

// How the device sees an address.
enum class Side {
  kDevice,
  kPinned,    // the device reads and writes it by itself
  kPageable,  // the host's own: the runtime copies it through memory of its own
};

Side side_of(const void* at) {
  const auto range = range_of(at);
  if (!range) return Side::kPageable;
  const bool device = range->kind == Kind::kDevice || range->kind == Kind::kReserved;
  return device ? Side::kDevice : Side::kPinned;
}

cudaMemcpyKind kind_of(Side to, Side from) {
  if (to == Side::kDevice) {
    return from == Side::kDevice ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  }
  return from == Side::kDevice ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

// Those below require the lock.
bool is_ours(const void* at) {
  const auto range = range_of_locked(at);
  return range && range->kind != Kind::kRegistered;
}

bool may_touch(Side side, const void* at, std::size_t bytes) {
  return side == Side::kPageable || bytes == 0 || is_backed(at, bytes);
}

void tell_fault(const char* what, const void* at, std::size_t bytes) {
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), "%s %zu bytes at %p, which are not there (any more)",
                what, bytes, at);
  fault(text.data());
}

// When the stream gets there.
void move(const Copy& copy, Side to_side, Side from_side) {
  for (std::size_t row = 0; row < copy.rows; ++row) {
    char* const to = static_cast<char*>(copy.to) + row * copy.to_pitch;
    const char* const from = static_cast<const char*>(copy.from) + row * copy.from_pitch;
    if (!may_touch(to_side, to, copy.bytes)) {
      return tell_fault("a copy writes", to, copy.bytes);
    }
    if (!may_touch(from_side, from, copy.bytes)) {
      return tell_fault("a copy reads", from, copy.bytes);
    }
    copy_bytes({to, is_ours(to)}, {const_cast<char*>(from), is_ours(from)}, copy.bytes);
  }
}

// The first half is moved when the stream comes to the copy, the second when it has passed it.
struct Halves {
  Copy first;
  Copy second;
};
Halves halves_of(const Copy& copy) {
  Halves halves{copy, copy};
  if (copy.rows > 1) {
    halves.first.rows = copy.rows / 2;
    halves.second.rows = copy.rows - halves.first.rows;
    halves.second.to = static_cast<char*>(copy.to) + halves.first.rows * copy.to_pitch;
    halves.second.from = static_cast<const char*>(copy.from) + halves.first.rows * copy.from_pitch;
  } else {
    halves.first.bytes = copy.bytes / 2;
    halves.second.bytes = copy.bytes - halves.first.bytes;
    halves.second.to = static_cast<char*>(copy.to) + halves.first.bytes;
    halves.second.from = static_cast<const char*>(copy.from) + halves.first.bytes;
  }
  return halves;
}

void set(void* at, int value, std::size_t bytes, Side side) {
  if (!may_touch(side, at, bytes)) return tell_fault("memory is set:", at, bytes);
  if (value == 0) {
    clear({at, is_ours(at)}, bytes);
  } else {
    std::memset(at, value, bytes);
  }
}

// What a copy from the host's own memory brings is what lies there when it is called.
struct Staged {
  std::vector<char> bytes;
  Copy copy;
};
std::shared_ptr<const Staged> staged(const Copy& copy) {
  auto made = std::make_shared<Staged>();
  made->bytes.resize(copy.bytes * copy.rows);
  for (std::size_t row = 0; row < copy.rows; ++row) {
    std::memcpy(made->bytes.data() + row * copy.bytes,
                static_cast<const char*>(copy.from) + row * copy.from_pitch, copy.bytes);
  }
  made->copy = copy;
  made->copy.from = made->bytes.data();
  made->copy.from_pitch = copy.bytes;
  return made;
}

}  // namespace

cudaError_t issue_copy(const Copy& copy, cudaStream_t stream) {
  const cudaMemcpyKind kind = kind_of(side_of(copy.to), side_of(copy.from));
  if (kind == cudaMemcpyDeviceToHost) ++reads();
  if (kind == cudaMemcpyHostToDevice) ++uploads();
  return issue_copy_taking(copy, copy_us(copy.bytes * copy.rows, kind), stream);
}

cudaError_t issue_copy_taking(const Copy& copy, double microseconds, cudaStream_t stream) {
  if (copy.bytes == 0 || copy.rows == 0) return say(cudaSuccess);
  const Side to = side_of(copy.to);
  const Side from = side_of(copy.from);
  Work work{microseconds};
  const bool later = settings().order != Order::kIssue;
  const bool captured = capture_state(stream).status != cudaStreamCaptureStatusNone;
  if (from == Side::kPageable && later && !captured) {
    // As the manual says: behind the stream, and the source may be changed when it returns.
    join(stream);
    work.act = [source = staged(copy), to] { move(source->copy, to, Side::kPageable); };
  } else {
    const Halves halves = halves_of(copy);
    work.begin = [copy = halves.first, to, from] { move(copy, to, from); };
    work.act = [copy = halves.second, to, from] { move(copy, to, from); };
  }
  issue(stream, std::move(work));
  if (to == Side::kPageable && !captured) join(stream);
  return say(cudaSuccess);
}

cudaError_t issue_set(void* at, int value, std::size_t bytes, cudaStream_t stream) {
  const Side side = side_of(at);
  const std::size_t half = bytes / 2;
  char* const rest = static_cast<char*>(at) + half;
  Work work{set_us(bytes)};
  work.begin = [=] { set(at, value, half, side); };
  work.act = [=] { set(rest, value, bytes - half, side); };
  issue(stream, std::move(work));
  return say(cudaSuccess);
}

}  // namespace pudica::emulated
