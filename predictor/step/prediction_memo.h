// PredictionMemo: what was predicted since anything was learned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "pudica/layer_profile.h"
#include "pudica/shape_key.h"
#include "pudica/step_learner.h"

namespace pudica {

// The costs of a step ask for the same few segments at one shape over and over: each mode of a
// layer is put together from several, and doubts the others. Bounded. Not thread-safe.
class PredictionMemo {
 public:
  using Prediction = std::optional<StoredEstimate>;

  // As it was noted; else what `predict()` says, noted.
  template <typename Predict>
  Prediction get(const SegmentKey& segment, const ShapeKey& shape, Predict predict) {
    const Asked asked{segment, shape};
    const auto known = noted_.find(asked);
    if (known != noted_.end()) return known->second;
    if (noted_.size() >= kMost) noted_.clear();
    return noted_.emplace(asked, predict()).first->second;
  }
  // Something was learned, or forgotten.
  void clear() { noted_.clear(); }

 private:
  static constexpr std::size_t kMost = 4096;

  struct Asked {
    SegmentKey segment;
    ShapeKey shape;

    bool operator==(const Asked&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Asked& asked) const {
      const SegmentKey& key = asked.segment;
      std::uint64_t packed = key.layer_class;
      packed = packed << 16U | key.mode.step;
      packed = packed << 8U | key.variant;
      packed = packed << 8U | static_cast<std::uint64_t>(key.mode.kind);
      packed = packed << 8U | static_cast<std::uint64_t>(key.kind);
      packed = (packed ^ asked.shape.hash()) * 0x9e3779b97f4a7c15ULL;
      return static_cast<std::size_t>(packed ^ packed >> 32U);
    }
  };

  std::unordered_map<Asked, Prediction, Hash> noted_;
};

}  // namespace pudica
