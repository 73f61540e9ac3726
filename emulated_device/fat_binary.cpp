#include "emulated_device/fat_binary.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pudica::emulated {
namespace {

// As nvcc writes it: the wrapper by the toolkit's fatbinary_section.h; of the rest, which has no
// public header, what was read off the binaries in torch's wheels.
struct Wrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const std::byte* data;
  const void* reserved;
};
struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_bytes;
  std::uint64_t bytes;  // of all entries
};
struct Entry {
  std::uint16_t kind;
  std::uint16_t version;
  std::uint32_t header_bytes;
  std::uint64_t payload_bytes;
  std::uint32_t reserved[3];
  std::uint32_t capability;
};
constexpr std::uint32_t kWrapperMagic = 0x466243B1;
constexpr std::uint32_t kHeaderMagic = 0xBA55ED50;
constexpr std::uint16_t kMachineCode = 2;

template <typename T>
T read(const std::byte* from) {
  T out;
  std::memcpy(&out, from, sizeof(T));
  return out;
}

}  // namespace

FatBinary::FatBinary(const void* wrapper) {
  if (wrapper == nullptr) return;
  const auto outer = read<Wrapper>(static_cast<const std::byte*>(wrapper));
  if (outer.magic != kWrapperMagic || outer.data == nullptr) return;
  const auto header = read<Header>(outer.data);
  if (header.magic != kHeaderMagic) return;
  const std::byte* at = outer.data + header.header_bytes;
  const std::byte* const end = at + header.bytes;
  while (at + sizeof(Entry) <= end) {
    const auto entry = read<Entry>(at);
    if (entry.header_bytes < sizeof(Entry)) return;
    if (entry.kind == kMachineCode) capabilities_.push_back(static_cast<int>(entry.capability));
    at += entry.header_bytes + entry.payload_bytes;
  }
  std::sort(capabilities_.begin(), capabilities_.end());
}

int FatBinary::capability_for(int capability) const {
  if (capabilities_.empty()) return capability;
  const auto newer = std::upper_bound(capabilities_.begin(), capabilities_.end(), capability);
  return newer == capabilities_.begin() ? *newer : *(newer - 1);
}

}  // namespace pudica::emulated
