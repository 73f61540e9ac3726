// Sizes that are no product of dimensions, as kernels make them: a factor rounded up to whole tiles
// (accumulators of attention, padded masks, partial sums of blocks of rows), or growth that ends
// (no more blocks than a device holds at once, a window of attention).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "predictor/bytes/event_fit.h"

namespace pudica::predictor {

// Of kernels: vectors of a mask to blocks of queries.
inline constexpr std::int64_t kLeastTile = 8;
inline constexpr std::int64_t kMostTile = 256;

// Coefficients are products of hidden sizes and bytes an element: what is left of them without
// their powers of two is small. (One that stands for a constant batch as well has more of those.)
std::uint64_t odd_part(const Form& form);

struct TiledForms {
  std::vector<Form> forms;  // each gives every size; the point first, then by preference
  // Distinct sizes that speak for them. Fewer than kEnough are easily fitted by tiles that are
  // none.
  std::size_t evidence = 0;

  std::size_t at_rest = 0;  // samples that grew no further: kEnough of them show that it is an end

  static constexpr std::size_t kEnough = 3;
};

// Forms with one term, one factor of it tiled: those with the roundest coefficients first, the
// range that rounding leaves to the coefficients at the end.
TiledForms match_tiled(const SizeSamples& samples, std::span<const Tiling> tilings);

// Forms with one term, tiled or not, that grow to a size, or to one an element of the batch, and
// stay there. At least two shapes there and two with less are required for a result, or three and
// one. `batch`: MonomialBasis::batch().
TiledForms match_capped(const SizeSamples& samples, std::span<const Tiling> tilings,
                        std::size_t batch);

}  // namespace pudica::predictor
