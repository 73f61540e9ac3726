// LargestShapes: the largest of the shapes at which something was seen.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "pudica/shape_key.h"

namespace pudica::hooks {

// By what the steps were `Like`, with something of each. What took no more than foreseen at a shape
// is taken to do so at those that it covers. Not thread-safe.
template <typename Like, typename Value>
class LargestShapes {
 public:
  // Of a shape that covers this one, the latest; nullopt: there is none.
  [[nodiscard]] std::optional<Value> above(const ShapeKey& shape, const Like& like) const {
    for (auto seen = seen_.rbegin(); seen != seen_.rend(); ++seen) {
      if (covers(seen->shape, shape) && seen->like == like) return seen->value;
    }
    return std::nullopt;
  }
  void add(const ShapeKey& shape, const Like& like, Value value) {
    for (const Seen& seen : seen_) {
      if (seen.shape == shape && seen.like == like && seen.value == value) return;
    }
    std::erase_if(seen_,
                  [&](const Seen& seen) { return covers(shape, seen.shape) && seen.like == like; });
    if (seen_.size() >= kMost) seen_.erase(seen_.begin());
    seen_.push_back({shape, like, std::move(value)});
  }
  void clear() { seen_.clear(); }

 private:
  static constexpr std::size_t kMost = 32;
  struct Seen {
    ShapeKey shape;
    Like like;
    Value value;
  };

  // A dimension of 1 is no smaller one: other operators run.
  static bool covers(const ShapeKey& larger, const ShapeKey& shape) {
    if (larger.size() != shape.size() || !larger.covers(shape)) return false;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if ((larger[d] == 1) != (shape[d] == 1)) return false;
    }
    return true;
  }

  std::vector<Seen> seen_;
};

}  // namespace pudica::hooks
