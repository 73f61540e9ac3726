#include "emulated_device/copies.h"

#include <cstring>

#include "emulated_device/address_space.h"
#include "emulated_device/costs.h"
#include "emulated_device/memory.h"
#include "emulated_device/streams.h"

namespace pudica::emulated {
namespace {

bool is_ours(const void* at) {
  const auto range = range_of(at);
  return range && range->kind != Kind::kRegistered;
}

bool is_on_device(const void* at) {
  const auto range = range_of(at);
  return range && (range->kind == Kind::kDevice || range->kind == Kind::kReserved);
}

cudaMemcpyKind kind_of(const Copy& copy) {
  const bool from = is_on_device(copy.from);
  if (is_on_device(copy.to)) return from ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return from ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

void move(const Copy& copy) {
  const bool to_ours = is_ours(copy.to);
  const bool from_ours = is_ours(copy.from);
  for (std::size_t row = 0; row < copy.rows; ++row) {
    char* const to = static_cast<char*>(copy.to) + row * copy.to_pitch;
    const char* const from = static_cast<const char*>(copy.from) + row * copy.from_pitch;
    copy_bytes({to, to_ours}, {const_cast<char*>(from), from_ours}, copy.bytes);
  }
}

}  // namespace

cudaError_t issue_copy(const Copy& copy, cudaStream_t stream) {
  issue(stream, {copy_us(copy.bytes * copy.rows, kind_of(copy)), [copy] { move(copy); }});
  return cudaSuccess;
}

cudaError_t issue_set(void* at, int value, std::size_t bytes, cudaStream_t stream) {
  const auto set = [=] {
    if (value == 0) {
      clear({at, is_ours(at)}, bytes);
    } else {
      std::memset(at, value, bytes);
    }
  };
  issue(stream, {set_us(bytes), set});
  return cudaSuccess;
}

}  // namespace pudica::emulated
