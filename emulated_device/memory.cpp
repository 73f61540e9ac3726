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
  std::map<std::uintptr_t, Range> ranges;          // by first address; they do not overlap
  std::map<std::uintptr_t, std::size_t> mappings;  // into reserved ranges
  std::array<std::size_t, kMostDevices> used{};
  std::uint64_t requests = 0;
  MemoryCounts counts;
};
Memory& memory() {
  static auto* the = new Memory;
  return *the;
}

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

std::size_t bytes_of(const Range& range) { return range.bytes; }
std::size_t bytes_of(std::size_t bytes) { return bytes; }

// The entry that holds the address; end: none does.
template <typename Value>
auto holder(const std::map<std::uintptr_t, Value>& map, std::uintptr_t at) {
  auto next = map.upper_bound(at);
  if (next == map.begin()) return map.end();
  --next;
  return at < next->first + bytes_of(next->second) ? next : map.end();
}

}  // namespace

std::optional<Range> range_of_locked(const void* pointer) {
  const auto found = holder(memory().ranges, address(pointer));
  if (found == memory().ranges.end()) return std::nullopt;
  return found->second;
}

std::optional<Range> range_of(const void* pointer) {
  const Guard guard(lock_of_all());
  return range_of_locked(pointer);
}

void note_range(void* at, const Range& range) { memory().ranges[address(at)] = range; }

bool forget_range(void* at) { return memory().ranges.erase(address(at)) != 0; }

void note_mapping(void* at, std::size_t bytes) { memory().mappings[address(at)] = bytes; }

void forget_mapping(void* at) { memory().mappings.erase(address(at)); }

bool is_backed(const void* at, std::size_t bytes) {
  const auto range = holder(memory().ranges, address(at));
  if (range == memory().ranges.end()) return false;
  const std::uintptr_t end = address(at) + bytes;
  if (end > range->first + range->second.bytes) return false;
  if (range->second.kind != Kind::kReserved) return true;
  const auto& mappings = memory().mappings;
  for (std::uintptr_t reached = address(at); reached < end;) {
    const auto mapping = holder(mappings, reached);
    if (mapping == mappings.end()) return false;
    reached = mapping->first + mapping->second;
  }
  return true;
}

void give_up_addresses(void* at, std::size_t bytes) {
  if (settings().freed == Freed::kFault) {
    forbid_pages(at, bytes);
  } else {
    unmap_pages(at, bytes);
  }
}

bool charge(int device, std::size_t bytes) {
  Memory& m = memory();
  std::size_t& used = m.used[static_cast<std::size_t>(device)];
  const Card& card = settings().card;
  const bool refused = settings().refused_mallocs.contains(++m.requests);
  if (refused || used + bytes + card.context_bytes > card.memory_bytes) {
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
  const Guard guard(lock_of_all());
  return release_locked(at, kind);
}

cudaError_t release_locked(void* at, Kind kind) {
  if (at == nullptr) return cudaSuccess;
  Memory& m = memory();
  const auto found = m.ranges.find(address(at));
  if (found == m.ranges.end() || found->second.kind != kind) return cudaErrorInvalidValue;
  const Range range = found->second;
  m.ranges.erase(found);
  if (kind == Kind::kDevice) discharge(range.device, range.bytes);
  if (kind == Kind::kPinned) m.counts.pinned_bytes -= range.bytes;
  if (kind != Kind::kRegistered) give_up_addresses(at, range.bytes);
  ++m.counts.frees;
  return cudaSuccess;
}

}  // namespace pudica::emulated
