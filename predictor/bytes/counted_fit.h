// Sizes whose factor is a number of tiles, and one more or less: of chunks that a scan goes through
// (with the state before the first), of blocks of a sparse attention (without those at its ends).
#pragma once

#include <cstdint>
#include <vector>

#include "predictor/bytes/event_fit.h"

namespace pudica::predictor {

// The shapes of a segment with a length counted, in each way that is tried. Made once for all its
// sizes. Immutable, hence thread-safe; names the basis that it is made with.
class CountedShapes {
 public:
  // `samples`: any of the segment's sizes, for their shapes.
  CountedShapes(const SizeSamples& samples, const MonomialBasis& basis);

  // Forms with one term, each factor of it that is some length counted in tiles of 8 to 256, or
  // with one more or less than there are; where there are none, with two, of which one has one such
  // factor less. Those with the roundest coefficients first, the range that rounding leaves to a
  // coefficient at the end. Required for a result: two distinct sizes more than a form has
  // coefficients. `samples` at the very shapes.
  [[nodiscard]] std::vector<Form> match(const SizeSamples& samples) const;

 private:
  struct View {
    Form counting;
    std::vector<std::int64_t> monomials;  // row-major
  };

  [[nodiscard]] Form as_counted(const View& view, Form form) const;
  void match_one_term(const SizeSamples& samples, const View& view, std::vector<Form>& points,
                      std::vector<Form>& extremes) const;
  void match_two_terms(const SizeSamples& samples, const View& view,
                       std::vector<Form>& points) const;

  const MonomialBasis& basis_;
  std::vector<View> views_;
};

}  // namespace pudica::predictor
