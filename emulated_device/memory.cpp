#include "emulated_device/memory.h"

#include <algorithm>
#include <array>
#include <map>

#include "emulated_device/address_space.h"
#include "emulated_device/settings.h"
#include "emulated_device/state.h"

namespace pudica::emulated {
namespace {

struct Memory {
  std::map<std::uintptr_t, Range> ranges;  // by first address; they do not overlap
  std::array<std::size_t, kMostDevices> used{};
  MemoryCounts counts;
};
Memory& memory() {
  static auto* the = new Memory;
  return *the;
}

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

std::optional<Range> range_of_locked(const void* pointer) {
  const auto& ranges = memory().ranges;
  auto next = ranges.upper_bound(address(pointer));
  if (next == ranges.begin()) return std::nullopt;
  --next;
  if (address(pointer) >= next->first + next->second.bytes) return std::nullopt;
  return next->second;
}

std::optional<Range> range_of(const void* pointer) {
  const Guard guard(lock_of_all());
  return range_of_locked(pointer);
}

void note_range(void* at, const Range& range) { memory().ranges[address(at)] = range; }

bool forget_range(void* at) { return memory().ranges.erase(address(at)) != 0; }

bool charge(int device, std::size_t bytes) {
  Memory& m = memory();
  std::size_t& used = m.used[static_cast<std::size_t>(device)];
  const Card& card = settings().card;
  if (used + bytes + card.context_bytes > card.memory_bytes) {
    ++m.counts.refused;
    return false;
  }
  used += bytes;
  if (device == 0) m.counts.most_bytes = std::max<std::uint64_t>(m.counts.most_bytes, used);
  return true;
}

void discharge(int device, std::size_t bytes) {
  memory().used[static_cast<std::size_t>(device)] -= bytes;
}

std::size_t used_bytes(int device) { return memory().used[static_cast<std::size_t>(device)]; }

MemoryCounts memory_counts() { return memory().counts; }

cudaError_t allocate(void** at, std::size_t bytes, Kind kind) {
  if (at == nullptr) return cudaErrorInvalidValue;
  *at = nullptr;
  if (bytes == 0) return cudaSuccess;
  const bool on_device = kind == Kind::kDevice;
  const std::size_t size = rounded(bytes, on_device ? kGranuleBytes : kPageBytes);
  const int device = current_device();
  const Guard guard(lock_of_all());
  if (on_device && !charge(device, size)) return cudaErrorMemoryAllocation;
  *at = map_pages(size, Access::kReadWrite);
  if (*at == nullptr) {
    if (on_device) discharge(device, size);
    return cudaErrorMemoryAllocation;
  }
  note_range(*at, {size, kind, device});
  ++memory().counts.mallocs;
  if (!on_device) memory().counts.pinned_bytes += size;
  return cudaSuccess;
}

cudaError_t release(void* at, Kind kind) {
  if (at == nullptr) return cudaSuccess;
  const Guard guard(lock_of_all());
  Memory& m = memory();
  const auto found = m.ranges.find(address(at));
  if (found == m.ranges.end() || found->second.kind != kind) return cudaErrorInvalidValue;
  const Range range = found->second;
  m.ranges.erase(found);
  if (kind == Kind::kDevice) discharge(range.device, range.bytes);
  if (kind == Kind::kPinned) m.counts.pinned_bytes -= range.bytes;
  if (kind != Kind::kRegistered) unmap_pages(at, range.bytes);
  ++m.counts.frees;
  return cudaSuccess;
}

}  // namespace pudica::emulated
