// Which dimensions of shapes are whole vectors. Kernels take other ways where a length is none: a
// mask is padded, a tail runs apart.
#pragma once

#include <array>
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

  // Where dimensions tell two sets apart: which of them a shape is like. kEither: some say the one,
  // some the other.
  enum class Like : std::uint8_t { kThese, kOthers, kEither };

  // The dimensions that are whole vectors, of `vector` elements.
  static std::uint32_t mask_of(const ShapeKey& shape, std::int64_t vector = kVector) {
    std::uint32_t mask = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] % vector == 0) mask |= std::uint32_t{1} << i;
    }
    return mask;
  }

  void add(const ShapeKey& shape) {
    for (std::size_t i = 0; i < kSizes; ++i) {
      once_[i] |= mask_of(shape, kVector << i);
      always_[i] &= mask_of(shape, kVector << i);
    }
  }

  bool operator==(const WholeVectors&) const = default;
  // By the dimensions that are whole vectors at all of the ones, at none of the others: of the
  // least size of which some are. nullopt: there is none.
  [[nodiscard]] std::optional<Like> like(const ShapeKey& shape, const WholeVectors& other) const {
    for (std::size_t i = 0; i < kSizes; ++i) {
      const std::uint32_t here = always_[i] & ~other.once_[i];
      const std::uint32_t there = other.always_[i] & ~once_[i];
      if ((here | there) == 0) continue;
      const std::uint32_t whole = mask_of(shape, kVector << i) & (here | there);
      if (whole == here) return Like::kThese;
      return whole == there ? Like::kOthers : Like::kEither;
    }
    return std::nullopt;
  }
  // Some dimension is a whole vector at all of these, at none of the others.
  [[nodiscard]] bool is_told_by_wholes_from(const WholeVectors& other) const {
    return (always_[0] & ~other.once_[0]) != 0;
  }
  // Whether some dimension tells, and all that do say so.
  [[nodiscard]] bool claims(const ShapeKey& shape, const WholeVectors& other) const {
    return like(shape, other) == Like::kThese;
  }

 private:
  static constexpr std::size_t kSizes = 6;  // of vectors, 8 to 256: chunks of scans among them
  static constexpr std::uint32_t kAll = ~std::uint32_t{0};

  std::array<std::uint32_t, kSizes> once_{};  // masks of dimensions, by size
  std::array<std::uint32_t, kSizes> always_{kAll, kAll, kAll, kAll, kAll, kAll};
};

}  // namespace pudica
