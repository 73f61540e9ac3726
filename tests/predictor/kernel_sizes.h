// Made-up segments of sizes that kernels choose.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "pudica/layer_profile.h"
#include "pudica/shape_key.h"

namespace pudica::testing {

using Size = std::function<std::int64_t(const ShapeKey&)>;

inline std::int64_t up(std::int64_t value, std::int64_t tile) {
  return (value + tile - 1) / tile * tile;
}

inline const Size kPlain = [](const ShapeKey& s) { return s[0] * s[1] * 1536; };
inline const Size kMask = [](const ShapeKey& s) { return s[0] * s[1] * up(s[1], 8) * 24; };

// Each size allocated beside the last, all freed at the end but the first.
inline SegmentSample sample(const std::vector<Size>& sizes, const ShapeKey& shape,
                            std::int64_t granules) {
  SegmentSample out;
  for (const Size& size : sizes) out.deltas.push_back(up(size(shape), granules));
  for (std::size_t i = sizes.size(); i > 1; --i) out.deltas.push_back(-out.deltas[i - 1]);
  for (const std::int64_t delta : out.deltas) {
    out.net_bytes += delta;
    out.peak_bytes = std::max(out.peak_bytes, out.net_bytes);
  }
  return out;
}

}  // namespace pudica::testing
