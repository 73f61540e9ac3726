#include "predictor/bytes/shape_set.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace pudica::predictor {

void ShapeSet::Range::add(double value) {
  least = std::min(least, value);
  most = std::max(most, value);
}

struct ShapeSet::Votes {
  bool these = false;
  bool others = false;
  bool between = false;

  void add(std::optional<WholeVectors::Like> like) {
    these = these || (like && *like != WholeVectors::Like::kOthers);
    others = others || (like && *like != WholeVectors::Like::kThese);
  }
  void add(double value, const Range& here, const Range& there) {
    if (here.mixes_with(there)) return;
    const bool is_above = here.least > there.most;
    const double to_here = is_above ? here.least - value : value - here.most;
    const double to_there = is_above ? value - there.most : there.least - value;
    between = between || (to_here > 0 && to_there > 0);
    (to_here <= 0 || (to_there > 0 && to_here < to_there) ? these : others) = true;
  }
};

void ShapeSet::add(const ShapeKey& shape, double volume) {
  whole_vectors_.add(shape);
  volume_.add(volume);
  dimensions_ = shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i) sizes_[i].add(static_cast<double>(shape[i]));
}

ShapeSet::Claim ShapeSet::claim(const ShapeKey& shape, double volume, const ShapeSet& other) const {
  Votes votes;
  votes.add(whole_vectors_.like(shape, other.whole_vectors_));
  votes.add(volume, volume_, other.volume_);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    votes.add(static_cast<double>(shape[i]), sizes_[i], other.sizes_[i]);
  }
  return {votes.these && !votes.others, votes.between || (votes.these && votes.others)};
}

bool ShapeSet::has_its_like(const ShapeKey& shape, const ShapeSet& other) const {
  const auto like = whole_vectors_.like(shape, other.whole_vectors_);
  const bool by_vectors = like == WholeVectors::Like::kThese;
  // Of few shapes it is no wonder that none is a whole vector, but that all are.
  if (like && other.whole_vectors_.is_told_by_wholes_from(whole_vectors_)) return by_vectors;
  Votes votes;
  for (std::size_t i = first_length(); i < dimensions_; ++i) {
    votes.add(static_cast<double>(shape[i]), sizes_[i], other.sizes_[i]);
  }
  return by_vectors || (votes.these && !votes.others);
}

bool ShapeSet::surrounds(const ShapeKey& shape) const {
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const auto size = static_cast<double>(shape[i]);
    if (size < sizes_[i].least || size > sizes_[i].most) return false;
  }
  return true;
}

bool ShapeSet::is_of_other_lengths(const ShapeSet& other) const {
  for (std::size_t i = first_length(); i < dimensions_; ++i) {
    if (!sizes_[i].mixes_with(other.sizes_[i])) return true;
  }
  return false;
}

}  // namespace pudica::predictor
