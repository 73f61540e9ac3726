// SHA-256 (FIPS 180-4), to name the parameters that a run ended with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pudica::train {

// Feed bytes with update(), then read the digest once. Not thread-safe.
class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  // 64 lower-case hexadecimal digits. Ends the computation.
  [[nodiscard]] std::string hex_digest();

 private:
  void compress(const std::byte* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  std::size_t pending_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace pudica::train
