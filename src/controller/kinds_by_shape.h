// KindsByShape: of which kind the steps of a shape were.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>

#include "pudica/shape_key.h"

namespace pudica {

// Which layers a step runs may hang on its shape: a dimension that is 1 in the model's midst is
// told by no dimension of the batch. A shape that was there is taken to be of the kind that it was
// of; another one of its nearest neighbour's, by the ratios of their dimensions, among those with a
// 1 in the same places, where there are any. At most 512 shapes, the smallest go first. Not
// thread-safe.
class KindsByShape {
 public:
  void note(const ShapeKey& shape, std::size_t kind) {
    if (kinds_.size() >= kMost && !kinds_.contains(shape)) kinds_.erase(kinds_.begin());
    kinds_[shape] = kind;
  }
  // No shape is of that kind any more.
  void forget(std::size_t kind) {
    std::erase_if(kinds_, [kind](const auto& known) { return known.second == kind; });
  }
  void clear() { kinds_.clear(); }

  // nullopt: that very shape was not there.
  [[nodiscard]] std::optional<std::size_t> known(const ShapeKey& shape) const {
    const auto found = kinds_.find(shape);
    return found == kinds_.end() ? std::nullopt : std::optional(found->second);
  }

  // Of the kinds that `may_be` is true for. Linear in the shapes where this one is new; nullopt: no
  // shape of such a kind has as many dimensions.
  template <typename Predicate>
  [[nodiscard]] std::optional<std::size_t> of(const ShapeKey& shape, Predicate&& may_be) const {
    if (const auto kind = known(shape); kind && may_be(*kind)) return kind;
    std::optional<std::size_t> nearest;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [other, kind] : kinds_) {
      const double distance = distance_of(shape, other);
      if (distance >= least || !may_be(kind)) continue;
      least = distance;
      nearest = kind;
    }
    return nearest;
  }

 private:
  static constexpr std::size_t kMost = 512;
  // More than any ratio of dimensions comes to.
  static constexpr double kOtherOnes = 1000;

  static double distance_of(const ShapeKey& left, const ShapeKey& right) {
    if (left.size() != right.size()) return std::numeric_limits<double>::infinity();
    double distance = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (left[i] == right[i]) continue;
      if (left[i] == 1 || right[i] == 1) distance += kOtherOnes;
      distance += std::abs(std::log(static_cast<double>(left[i])) -
                           std::log(static_cast<double>(right[i])));
    }
    return distance;
  }

  std::map<ShapeKey, std::size_t> kinds_;
};

}  // namespace pudica
