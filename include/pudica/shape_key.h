// ShapeKey: the input dimensions that vary from batch to batch, named.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pudica/result.h"

namespace pudica {

// Names of the dimensions in order, interned: two keys with the same names share one pointer.
using DimensionNames = std::vector<std::string>;
const DimensionNames* intern_dimension_names(const DimensionNames& names);

// Values (>= 1) of at most kMaxDimensions named dimensions, such as batch=12, source=384.
// The first dimension is the batch by convention. No allocation on copy. Thread-safe: a value.
class ShapeKey {
 public:
  static constexpr std::size_t kMaxDimensions = 6;

  ShapeKey() = default;
  // Names default to batch, source, target, dim3, ...
  ShapeKey(std::initializer_list<std::int64_t> values);
  explicit ShapeKey(std::span<const std::int64_t> values);
  ShapeKey(const DimensionNames& names, std::span<const std::int64_t> values);

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::int64_t operator[](std::size_t index) const { return values_[index]; }
  [[nodiscard]] std::span<const std::int64_t> values() const { return {values_.data(), size_}; }
  [[nodiscard]] const DimensionNames& names() const { return *names_; }

  // "12x384"
  [[nodiscard]] std::string to_string() const;
  // "batch=12,source=384"
  [[nodiscard]] std::string to_named_string() const;
  // Reads either form. Errors: kInvalidArgument.
  static Result<ShapeKey> parse(std::string_view text);

  // True if every dimension is at least the other's (same number of dimensions required).
  [[nodiscard]] bool covers(const ShapeKey& other) const;
  [[nodiscard]] std::size_t hash() const;

  bool operator==(const ShapeKey& other) const;
  // Lexicographic by value: an order for containers, not for memory.
  std::strong_ordering operator<=>(const ShapeKey& other) const;

 private:
  const DimensionNames* names_ = nullptr;
  std::array<std::int64_t, kMaxDimensions> values_{};
  std::size_t size_ = 0;
};

}  // namespace pudica

template <>
struct std::hash<pudica::ShapeKey> {
  std::size_t operator()(const pudica::ShapeKey& key) const noexcept { return key.hash(); }
};
