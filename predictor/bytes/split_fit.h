// Sizes that follow one form up to some length and another beyond it, as kernels choose their
// blocks: of attention on a CPU (32 queries at a time, 64 from 192 on, 256 from 768 on), of an only
// chunk and several.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "predictor/bytes/event_fit.h"

namespace pudica::predictor {

class SplitForms {
 public:
  // Between the lengths of two pieces it may be either. What is shorter or longer than all that
  // was seen may be of a piece that was not.
  struct Range {
    std::int64_t point = 0;  // the larger
    std::int64_t low = 0;
    std::int64_t high = 0;
    bool is_beyond = false;
  };

  // Two or three pieces by one length, each with three shapes or more and two more than its form
  // has coefficients. nullopt: there are none that give every size.
  static std::optional<SplitForms> match(const SizeSamples& samples, const MonomialBasis& basis);

  [[nodiscard]] Range range(std::span<const std::int64_t> monomials) const;
  // Of the longest shapes.
  [[nodiscard]] const Form& last() const { return pieces_.back().forms.front(); }

 private:
  struct Piece {
    std::vector<Form> forms;
    std::int64_t shortest = 0;
    std::int64_t longest = 0;

    void add_to(Range& range, std::span<const std::int64_t> monomials) const;
  };
  class Sorted;

  std::uint8_t length_ = 0;  // a monomial
  std::vector<Piece> pieces_;
};

}  // namespace pudica::predictor
