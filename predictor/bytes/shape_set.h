// What tells the shapes that a program takes one way at from those it takes another at.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/whole_vectors.h"
#include "pudica/shape_key.h"

namespace pudica::predictor {

// Shapes with the same number of dimensions: how large they are, and which dimensions are whole
// vectors (what pads is not there). A value.
class ShapeSet {
 public:
  // Whether a shape is like these or like others. Open where it lies between them, or one thing
  // says this and another that: it may be either.
  struct Claim {
    bool holds = false;
    bool is_open = false;
  };

  void add(const ShapeKey& shape, double volume);

  // Nothing holds where nothing tells them apart. A dimension (a loop goes once more) or the volume
  // (large sums are taken in other ways than small ones) tells where the two do not mix.
  [[nodiscard]] Claim claim(const ShapeKey& shape, double volume, const ShapeSet& other) const;
  // Whole vectors or a length, where they tell, say that the shape is like these.
  [[nodiscard]] bool has_its_like(const ShapeKey& shape, const ShapeSet& other) const;
  // Between the least and the most of these in every dimension.
  [[nodiscard]] bool surrounds(const ShapeKey& shape) const;
  // All shapes of the one are longer than any of the other, in some dimension that is no batch.
  [[nodiscard]] bool is_of_other_lengths(const ShapeSet& other) const;

 private:
  struct Range {
    double least = std::numeric_limits<double>::infinity();
    double most = 0;

    void add(double value);
    [[nodiscard]] bool mixes_with(const Range& other) const {
      return least <= other.most && other.least <= most;
    }
  };
  struct Votes;

  [[nodiscard]] std::size_t first_length() const { return dimensions_ > 1 ? 1 : 0; }

  WholeVectors whole_vectors_;
  Range volume_;
  std::size_t dimensions_ = 0;
  std::array<Range, ShapeKey::kMaxDimensions> sizes_;
};

}  // namespace pudica::predictor
