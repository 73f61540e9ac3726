// Reads the exact size of one allocation as a function of the shape, from its sizes at several
// shapes. Tensor sizes are integers times products of dimensions, so few shapes are enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "predictor/bytes/monomials.h"

namespace pudica::predictor {

// A dimension that goes into a form's terms as the number of tiles that it needs, and `more`
// (counted_fit.h).
struct Count {
  static constexpr std::uint8_t kNone = 0xff;

  std::uint8_t dimension = kNone;  // a monomial
  std::int8_t more = 0;
  std::uint8_t first_power = 0;  // how often it goes into the terms
  std::uint8_t second_power = 0;

  bool operator==(const Count&) const = default;
};

// ceil(coefficient * m + second_coefficient * n, divided by `denominator`), rounded up to
// `granularity_bytes`; m and n are monomials of the shape. A pure form has no second term. In a
// tiled form the factor `tiled` of m is rounded up to whole tiles, a capped one grows no further
// than `most_bytes` times the monomial `most_of` (tiled_fit.h). In a counted one a dimension is
// counted in tiles. (A share of m in whole granules is one with a constant, share_fit.h.)
struct Form {
  static constexpr std::uint8_t kNoTerm = 0xff;

  std::uint8_t monomial = 0;
  std::uint8_t second = kNoTerm;
  std::int64_t coefficient = 0;
  std::int64_t second_coefficient = 0;
  std::int64_t denominator = 1;  // 8 for masks held as bits
  std::int64_t granularity_bytes = 1;
  std::uint8_t tiled = kNoTerm;  // a monomial that divides the first one
  std::int64_t tile = 1;
  std::int64_t most_bytes = kLargestValue;  // before it is rounded
  std::uint8_t most_of = 0;
  bool ties_to_even = false;  // of shares: what lies between two numbers of granules
  Count count;

  bool operator==(const Form&) const = default;
  [[nodiscard]] bool is_capped() const { return most_bytes != kLargestValue; }
  // Of its two coefficients rounding leaves others open, which give every size as well.
  [[nodiscard]] bool is_rounded_sum() const {
    return granularity_bytes > 1 && count.second_power > 0;
  }
  // The first monomial, tiled or counted. Saturates at kLargestValue.
  [[nodiscard]] std::int64_t first_term(std::span<const std::int64_t> monomials) const;
  // Bytes in [0, kLargestValue] at the monomial values of a shape.
  [[nodiscard]] std::int64_t evaluate(std::span<const std::int64_t> monomials) const;

 private:
  [[nodiscard]] std::int64_t most(std::span<const std::int64_t> monomials) const;
  // A monomial with `power` factors counted.
  [[nodiscard]] std::int64_t counted(std::span<const std::int64_t> monomials, std::uint8_t monomial,
                                     std::uint8_t power) const;
};

// The sizes of one event at several shapes, and the monomials there: one row a shape.
struct SizeSamples {
  std::span<const std::int64_t> monomials;  // row-major, sizes.size() rows
  std::size_t columns = 0;                  // monomials a row
  std::span<const std::int64_t> sizes;      // > 0
  std::int64_t granularity_bytes = 1;

  [[nodiscard]] std::span<const std::int64_t> row(std::size_t index) const {
    return monomials.subspan(index * columns, columns);
  }
};

// Forms with one term that give every size, in order of preference. The first form of a monomial
// is its point estimate; the range that rounding leaves to a coefficient follows at the end.
// Sizes that are whole bytes of bits are tried when no form in bytes agrees.
std::vector<Form> match_one_term(const SizeSamples& samples);

// Forms with two terms that give every size: constant plus a term; from three shapes on any two.
// At least two shapes are required for a result.
std::vector<Form> match_two_terms(const SizeSamples& samples);
// A sum of just these monomials. The coefficient of the second one is positive, that of the first
// may not be.
std::optional<Form> match_pair(const SizeSamples& samples, std::size_t first, std::size_t second);

// How such forms are found, for those that are found elsewhere.
struct CoefficientRange {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

// The coefficients c >= 1 for which c * the first term of `form` rounds to every size.
std::optional<CoefficientRange> coefficient_range(const SizeSamples& samples, const Form& form);
// The multiple of the largest power of two within the range: coefficients are products of hidden
// sizes and bytes an element. Requires: low <= high.
std::int64_t roundest(CoefficientRange range);
// The form with the roundest coefficient within the range, and those at its ends.
void add_within(Form form, CoefficientRange range, std::vector<Form>& points,
                std::vector<Form>& extremes);
bool reproduces(const Form& form, const SizeSamples& samples);
// Sizes that are no multiples of the granularity were never rounded.
SizeSamples with_true_granularity(SizeSamples samples);

}  // namespace pudica::predictor
