#include "emulated_device/address_space.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <vector>

namespace pudica::emulated {
namespace {

// Below it a copy is cheaper than asking which pages there are.
constexpr std::size_t kSparseCopyBytes = 16 * kPageBytes;

constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

char* pointer(std::uintptr_t address) { return reinterpret_cast<char*>(address); }

int protection(Access access) {
  return access == Access::kNone ? PROT_NONE : PROT_READ | PROT_WRITE;
}

}  // namespace

void* map_pages(std::size_t bytes, Access access) {
  void* at = mmap(nullptr, bytes, protection(access), kFlags, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  madvise(at, bytes, MADV_NOHUGEPAGE);
  madvise(at, bytes, MADV_DONTDUMP);
  return at;
}

void unmap_pages(void* at, std::size_t bytes) { munmap(at, bytes); }

void forbid_pages(void* at, std::size_t bytes) {
  mmap(at, bytes, PROT_NONE, kFlags | MAP_FIXED, -1, 0);
}

void set_access(void* at, std::size_t bytes, Access access) {
  mprotect(at, bytes, protection(access));
}

void drop_pages(void* at, std::size_t bytes) { madvise(at, bytes, MADV_DONTNEED); }

void clear(Place place, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(place.at);
  const std::uintptr_t first = rounded(begin, kPageBytes);
  const std::uintptr_t end = (begin + bytes) / kPageBytes * kPageBytes;
  if (end <= first || !place.ours) {
    std::memset(place.at, 0, bytes);
    return;
  }
  std::memset(place.at, 0, first - begin);
  drop_pages(pointer(first), end - first);
  std::memset(pointer(end), 0, begin + bytes - end);
}

void copy_bytes(Place to, Place from, std::size_t bytes) {
  if (bytes == 0) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(from.at);
  const std::uintptr_t page = begin / kPageBytes * kPageBytes;
  const std::size_t pages = (begin + bytes - page + kPageBytes - 1) / kPageBytes;
  std::vector<unsigned char> resident;
  if (bytes >= kSparseCopyBytes && to.ours && from.ours) {
    resident.resize(pages);
    if (mincore(pointer(page), pages * kPageBytes, resident.data()) != 0) resident.clear();
  }
  if (resident.empty()) {
    std::memmove(to.at, from.at, bytes);
    return;
  }
  for (std::size_t i = 0; i < pages;) {
    const int there = resident[i] & 1;
    std::size_t j = i;
    while (j < pages && (resident[j] & 1) == there) ++j;
    const std::uintptr_t first = std::max(begin, page + i * kPageBytes);
    const std::size_t size = std::min(begin + bytes, page + j * kPageBytes) - first;
    char* const target = static_cast<char*>(to.at) + (first - begin);
    if (there != 0) {
      std::memmove(target, pointer(first), size);
    } else {
      clear({target, true}, size);
    }
    i = j;
  }
}

}  // namespace pudica::emulated
