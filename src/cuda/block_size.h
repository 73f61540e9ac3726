// What torch's caching allocator makes of a request, by its own settings.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <c10/core/AllocatorConfig.h>

namespace pudica::hooks {

// A block's bytes: whole units of 512, or the setting roundup_power2_divisions (a part of the next
// power of two). Without expandable segments a block may be up to 1 MiB larger than this: the
// allocator does not split off less.
inline std::int64_t block_bytes(std::size_t requested) {
  constexpr std::size_t kUnit = 512;
  if (requested < kUnit) return static_cast<std::int64_t>(kUnit);
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  const std::size_t divisions = Config::roundup_power2_divisions(requested);
  if (divisions <= 1 || requested <= kUnit * divisions) {
    return static_cast<std::int64_t>((requested + kUnit - 1) / kUnit * kUnit);
  }
  if (std::has_single_bit(requested)) return static_cast<std::int64_t>(requested);
  const std::size_t floor = std::bit_floor(requested);
  const auto parts = static_cast<unsigned>(std::bit_width(divisions) - 1);
  const std::size_t part = floor >> parts;
  if (part == 0) return static_cast<std::int64_t>(floor << 1U);
  const std::size_t below = requested / part * part;
  return static_cast<std::int64_t>(below == requested ? requested : below + part);
}

// What a block of `bytes` takes from the device when the cache has none: a segment. With expandable
// segments it is whole pages of one of these sizes.
inline std::int64_t segment_bytes(std::int64_t bytes) {
  constexpr std::int64_t kSmallBlock = std::int64_t{1} << 20U;
  constexpr std::int64_t kSmallSegment = std::int64_t{2} << 20U;
  constexpr std::int64_t kLargeBlock = std::int64_t{10} << 20U;
  constexpr std::int64_t kRounding = std::int64_t{2} << 20U;
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  if (bytes <= kSmallBlock) return kSmallSegment;
  if (bytes < kLargeBlock) return static_cast<std::int64_t>(Config::large_segment_size());
  return (bytes + kRounding - 1) / kRounding * kRounding;
}

}  // namespace pudica::hooks
