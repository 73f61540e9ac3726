// Host address space that stands for memory of a device: without backing until it is written, so
// that a device of 80 GiB costs what is copied and set there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pudica::emulated {

constexpr std::size_t kPageBytes = 4096;

constexpr std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

enum class Access { kNone, kReadWrite };

// Zeros. nullptr: the host refuses.
void* map_pages(std::size_t bytes, Access access);
void unmap_pages(void* at, std::size_t bytes);
// Nobody gets these addresses again, and who touches them ends.
void forbid_pages(void* at, std::size_t bytes);
void set_access(void* at, std::size_t bytes, Access access);
// The pages are zeros again, and the host has their memory back. Requires: they were mapped here.
void drop_pages(void* at, std::size_t bytes);

// `ours`: mapped here, so that whole pages of zeros can be given back.
struct Place {
  void* at;
  bool ours;
};
void clear(Place place, std::size_t bytes);
// Between places of ours, what was never written is not copied but cleared.
void copy_bytes(Place to, Place from, std::size_t bytes);

}  // namespace pudica::emulated
