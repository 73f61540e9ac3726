// Bytes: a checked count of bytes. Differences may be negative; overflow throws.
#pragma once

#include <compare>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "pudica/result.h"

namespace pudica {

// A signed byte count that does not mix with plain numbers by accident.
// Arithmetic that overflows 64 bits throws std::overflow_error. Thread-safe: a value.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t count) : count_(count) {}

  [[nodiscard]] constexpr std::int64_t count() const { return count_; }
  [[nodiscard]] constexpr double mebibytes() const {
    return static_cast<double>(count_) / (1024.0 * 1024.0);
  }

  constexpr auto operator<=>(const Bytes&) const = default;

  friend constexpr Bytes operator+(Bytes left, Bytes right) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(left.count_, right.count_, &sum)) {
      throw std::overflow_error("Bytes: sum overflows 64 bits");
    }
    return Bytes(sum);
  }
  friend constexpr Bytes operator-(Bytes left, Bytes right) {
    std::int64_t difference = 0;
    if (__builtin_sub_overflow(left.count_, right.count_, &difference)) {
      throw std::overflow_error("Bytes: difference overflows 64 bits");
    }
    return Bytes(difference);
  }
  friend constexpr Bytes operator*(Bytes left, std::int64_t factor) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(left.count_, factor, &product)) {
      throw std::overflow_error("Bytes: product overflows 64 bits");
    }
    return Bytes(product);
  }
  constexpr Bytes& operator+=(Bytes other) { return *this = *this + other; }
  constexpr Bytes& operator-=(Bytes other) { return *this = *this - other; }

 private:
  std::int64_t count_ = 0;
};

// Reads "600MiB", "1.5GB", "4096" or "4096B" (units: B, kB, MB, GB, TB, KiB, MiB, GiB, TiB; case
// does not matter; a point needs one). Errors: kInvalidArgument naming the text, what was expected.
Result<Bytes> parse_bytes(std::string_view text);

// "612.5 MiB": three to four significant digits with a binary unit.
std::string format_bytes(Bytes bytes);

}  // namespace pudica
