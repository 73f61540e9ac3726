// Which kinds of shapes are measured well enough: whole vectors in the same lengths, and 1 in the
// same dimensions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/whole_vectors.h"
#include "pudica/shape_key.h"

namespace pudica {

// Frameworks run other operators for some kinds of shapes, and fewer or more of them: what others
// showed of a segment need not hold there. Two shapes of a kind are to be measured. A value; not
// thread-safe.
class MeasuredShapes {
 public:
  [[nodiscard]] bool wants(const ShapeKey& shape) const {
    const auto found = kinds_.find(kind_of(shape));
    if (found == kinds_.end()) return true;
    const Kind& kind = found->second;
    return !kind.is_known && *kind.first != shape;
  }
  // In a step that taught something.
  void note(const ShapeKey& shape) {
    Kind& kind = kinds_[kind_of(shape)];
    if (kind.first && *kind.first != shape) kind.is_known = true;
    if (!kind.first) kind.first = shape;
  }
  void clear() { kinds_.clear(); }

 private:
  struct Kind {
    std::optional<ShapeKey> first;
    bool is_known = false;  // at two shapes
  };
  using Masks = std::pair<std::uint32_t, std::uint32_t>;

  static Masks kind_of(const ShapeKey& shape) {
    constexpr std::uint32_t kBatch = 1;
    return {WholeVectors::mask_of(shape) & ~kBatch, ones_of(shape)};
  }

  std::map<Masks, Kind> kinds_;
};

}  // namespace pudica
