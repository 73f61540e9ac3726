// What a layer's forward and backward leave together.
#include <algorithm>

#include "predictor/step/segment_store.h"

namespace pudica {
namespace {

std::optional<LeftEverywhere> left_by(const Predictor& predictor, const SegmentKey& forward,
                                      const SegmentKey& backward) {
  constexpr std::size_t kEnough = 3;
  const std::vector<MeasuredNet> before = predictor.measured_nets(forward);
  std::optional<LeftEverywhere> left;
  std::int64_t first_forward = 0;
  std::size_t shapes = 0;
  bool moved = false;  // what the forward left
  for (const MeasuredNet& after : predictor.measured_nets(backward)) {
    const auto there = std::ranges::find(before, after.shape, &MeasuredNet::shape);
    if (there == before.end()) continue;
    const std::int64_t bytes = there->net_bytes + after.net_bytes;
    ++shapes;
    if (!left) {
      left = LeftEverywhere{bytes, after.shape, {}};
      first_forward = there->net_bytes;
      continue;
    }
    if (bytes != left->bytes || after.shape.size() != left->shape.size()) return std::nullopt;
    moved = moved || there->net_bytes != first_forward;
    for (std::size_t d = 0; d < after.shape.size(); ++d) {
      left->varied.at(d) = left->varied.at(d) || after.shape[d] != left->shape[d];
    }
  }
  return moved && shapes >= kEnough ? left : std::nullopt;
}

}  // namespace

bool LeftEverywhere::says_of(const ShapeKey& asked) const {
  if (asked.size() != shape.size()) return false;
  for (std::size_t d = 0; d < asked.size(); ++d) {
    if (asked[d] != shape[d] && !varied.at(d)) return false;
  }
  return true;
}

std::optional<LeftEverywhere> SegmentStore::left_everywhere(const SegmentKey& forward,
                                                            const SegmentKey& backward) const {
  if (left_version_ != predictor_->version()) {
    left_.clear();
    left_version_ = predictor_->version();
  }
  const auto known = left_.find(backward);
  if (known != left_.end()) return known->second;
  return left_[backward] = left_by(*predictor_, forward, backward);
}

}  // namespace pudica
