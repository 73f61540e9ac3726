// Which dimensions of shapes are whole vectors. Kernels take other ways where a length is none: a
// mask is padded, a tail runs apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "pudica/shape_key.h"

namespace pudica {

// The dimensions that are 1, where frameworks take other ways as well.
inline std::uint32_t ones_of(const ShapeKey& shape) {
  std::uint32_t mask = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] <= 1) mask |= std::uint32_t{1} << i;
  }
  return mask;
}

// Of a set of shapes with the same number of dimensions.
class WholeVectors {
 public:
  static constexpr std::int64_t kVector = 8;

  // The dimensions that are whole vectors.
  static std::uint32_t mask_of(const ShapeKey& shape) {
    std::uint32_t mask = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] % kVector == 0) mask |= std::uint32_t{1} << i;
    }
    return mask;
  }

  void add(const ShapeKey& shape) {
    once_ |= mask_of(shape);
    always_ &= mask_of(shape);
  }

  bool operator==(const WholeVectors&) const = default;
  // Where a dimension tells these shapes from the others (whole vectors at all of the ones, at none
  // of the others): true if every such dimension of `shape` is as here. nullopt: none does.
  [[nodiscard]] std::optional<bool> claims(const ShapeKey& shape, const WholeVectors& other) const {
    const std::uint32_t here = always_ & ~other.once_;
    const std::uint32_t there = other.always_ & ~once_;
    if ((here | there) == 0) return std::nullopt;
    return (mask_of(shape) & (here | there)) == here;
  }

 private:
  std::uint32_t once_ = 0;  // masks of dimensions
  std::uint32_t always_ = ~std::uint32_t{0};
};

}  // namespace pudica
