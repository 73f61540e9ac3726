// Who holds which address, and how much of each device is taken. A request that does not fit is
// refused, as by the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <cuda_runtime_api.h>

namespace pudica::emulated {

// What cudaMalloc and cuMemCreate round up to.
constexpr std::size_t kGranuleBytes = std::size_t{2} << 20U;

enum class Kind {
  kDevice,      // cudaMalloc
  kPinned,      // cudaHostAlloc
  kRegistered,  // the program's own, made known by cudaHostRegister
  kReserved,    // addresses of a device that memory can be mapped to
};

struct Range {
  std::size_t bytes = 0;
  Kind kind = Kind::kDevice;
  int device = 0;
};

// Both take the lock.
cudaError_t allocate(void** at, std::size_t bytes, Kind kind);
cudaError_t release(void* at, Kind kind);
// Requires: the lock.
cudaError_t release_locked(void* at, Kind kind);

// The range that holds the address. Takes the lock.
std::optional<Range> range_of(const void* pointer);

// Those below require the lock.
std::optional<Range> range_of_locked(const void* pointer);
// An address that is held but not backed by `allocate`.
void note_range(void* at, const Range& range);
bool forget_range(void* at);
// What of reserved addresses has memory.
void note_mapping(void* at, std::size_t bytes);
void forget_mapping(void* at);
// Whether all of it is held, and has memory.
bool is_backed(const void* at, std::size_t bytes);
// Addresses that nobody holds any more.
void give_up_addresses(void* at, std::size_t bytes);
// Takes bytes of a device; false: they are not there.
bool charge(int device, std::size_t bytes);
void discharge(int device, std::size_t bytes);
std::size_t used_bytes(int device);

// Counted since the process began.
struct MemoryCounts {
  std::uint64_t mallocs = 0;
  std::uint64_t frees = 0;
  std::uint64_t refused = 0;
  std::uint64_t pinned_bytes = 0;  // at present
  std::uint64_t most_bytes = 0;    // of the first device
};
MemoryCounts memory_counts();

}  // namespace pudica::emulated
