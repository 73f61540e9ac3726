// Monomials of a shape key: the features in which bytes and times are expressed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pudica/shape_key.h"

namespace pudica::predictor {

// Byte counts and monomial values saturate here (64 TiB): sums of 2^16 of them fit 64 bits.
inline constexpr std::int64_t kLargestValue = std::int64_t{1} << 46;
// Events of one segment that are learned one by one; longer logs count as not recorded.
inline constexpr std::size_t kMostEvents = std::size_t{1} << 16;

// `monomial` is a product with `factor`, which is a monomial itself: one dimension, or the rows of
// a batch (batch times a dimension).
struct Tiling {
  std::uint8_t monomial = 0;
  std::uint8_t factor = 0;
};

// The monomials of shapes with a given number of dimensions, in order of preference where the data
// leave a choice: 1; batch times one other dimension; batch times two; then the same without
// batch. Of a single dimension x: 1, x, x^2. Immutable, hence thread-safe.
class MonomialBasis {
 public:
  // The shared basis for `dimensions` <= ShapeKey::kMaxDimensions.
  static const MonomialBasis& of(std::size_t dimensions);

  explicit MonomialBasis(std::size_t dimensions);

  [[nodiscard]] std::size_t size() const { return factors_.size(); }
  [[nodiscard]] std::size_t dimensions() const { return dimensions_; }
  // Monomials 1 .. linear_count() are linear in each dimension but the batch ("volumes").
  [[nodiscard]] std::size_t linear_count() const { return linear_count_; }
  // Monomials 0 .. time_count()-1 describe the time of a layer.
  [[nodiscard]] std::size_t time_count() const { return time_count_; }

  // Writes size() values, each in [1, kLargestValue]; dimensions below 1 count as 1.
  void evaluate(const ShapeKey& shape, std::span<std::int64_t> values) const;
  // The monomials in which kernels round a part up to whole tiles, and that part.
  [[nodiscard]] std::span<const Tiling> tilings() const { return tilings_; }
  // Dimensions that may be lengths, as monomials.
  [[nodiscard]] std::span<const std::uint8_t> lengths() const { return lengths_; }
  // How often a product has the length among its factors.
  [[nodiscard]] std::uint8_t power(std::size_t monomial, std::uint8_t length) const;
  // The product without one of them. Requires: power() > 0.
  [[nodiscard]] std::size_t without(std::size_t monomial, std::uint8_t length) const;
  // The batch by itself; 0 where a shape has no batch beside other dimensions.
  [[nodiscard]] std::size_t batch() const;
  // The sum of the volumes: what a shape without further knowledge is measured by.
  [[nodiscard]] double volume(const ShapeKey& shape) const;
  // "1", "batch*source^2"
  [[nodiscard]] std::string name(std::size_t monomial, const DimensionNames& names) const;

 private:
  static constexpr std::uint8_t kOne = ShapeKey::kMaxDimensions;  // the factor 1
  using Factors = std::array<std::uint8_t, 3>;                    // dimensions, sorted

  using Sizes = std::array<std::int64_t, ShapeKey::kMaxDimensions + 1>;  // with the factor 1

  [[nodiscard]] Sizes sizes_of(const ShapeKey& shape) const;
  [[nodiscard]] std::int64_t product(std::size_t monomial, const Sizes& sizes) const;
  void add_products(std::uint8_t leading);
  void add_tilings(const Factors& factor);
  [[nodiscard]] std::size_t find(const Factors& factors) const;

  std::size_t dimensions_ = 0;
  std::size_t linear_count_ = 0;
  std::size_t time_count_ = 1;
  std::vector<Factors> factors_;
  std::vector<Tiling> tilings_;
  std::vector<std::uint8_t> lengths_;
};

// Of batch and five further dimensions: 2 * (1 + 5 + 15).
inline constexpr std::size_t kMostMonomials = 42;

}  // namespace pudica::predictor
