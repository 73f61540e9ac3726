// What a layer's forward and backward leave together.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "predictor/step/segment_store.h"

namespace pudica {

void LeftTogether::add(const ShapeKey& shape, std::int64_t forward_net_bytes,
                       std::int64_t left_bytes) {
  const Call call{forward_net_bytes, left_bytes};
  if (calls_.empty()) shape_ = shape;
  same_ = same_ && shape.size() == shape_.size() &&
          (calls_.empty() || left_bytes == calls_.front().left_bytes);
  for (std::size_t d = 0; d < std::min(shape.size(), shape_.size()); ++d) {
    varied_.at(d) = varied_.at(d) || shape[d] != shape_[d];
  }
  calls_.insert(std::ranges::upper_bound(calls_, forward_net_bytes, {}, &Call::forward_net_bytes),
                call);
}

std::optional<std::int64_t> LeftTogether::everywhere(const ShapeKey& asked) const {
  constexpr std::size_t kEnough = 3;
  if (!same_ || calls_.size() < kEnough || asked.size() != shape_.size()) return std::nullopt;
  if (calls_.front().forward_net_bytes == calls_.back().forward_net_bytes) return std::nullopt;
  for (std::size_t d = 0; d < asked.size(); ++d) {
    if (asked[d] != shape_[d] && !varied_.at(d)) return std::nullopt;
  }
  return calls_.front().left_bytes;
}

std::optional<std::int64_t> LeftTogether::behind(std::int64_t forward_net_bytes,
                                                 std::int64_t noticeable_bytes) const {
  if (calls_.size() < 2) return std::nullopt;
  const Call& least = calls_.front();
  const Call& most = calls_.back();
  const auto run = static_cast<double>(most.forward_net_bytes - least.forward_net_bytes);
  const auto rise = static_cast<double>(most.left_bytes - least.left_bytes);
  const double slope = run > 0 ? std::clamp(rise / run, 0.0, 1.0) : 0.0;
  const auto at = [&](std::int64_t forward) {
    const auto from = [&](const Call& call) {
      return call.left_bytes +
             std::llround(slope * static_cast<double>(forward - call.forward_net_bytes));
    };
    return std::max(from(least), from(most));
  };
  const bool more = calls_.size() > 2;
  const bool off = std::ranges::any_of(calls_, [&](const Call& call) {
    return std::abs(at(call.forward_net_bytes) - call.left_bytes) > noticeable_bytes;
  });
  if (more && off) return std::nullopt;
  return at(forward_net_bytes);
}

const LeftTogether& SegmentStore::left_together(const SegmentKey& forward,
                                                const SegmentKey& backward) const {
  if (left_version_ != predictor_->version()) {
    left_.clear();
    left_version_ = predictor_->version();
  }
  const auto [entry, is_new] = left_.try_emplace({forward, backward});
  if (!is_new) return entry->second;
  const std::vector<MeasuredNet> before = predictor_->measured_nets(forward);
  for (const MeasuredNet& after : predictor_->measured_nets(backward)) {
    const auto there = std::ranges::find(before, after.shape, &MeasuredNet::shape);
    if (there == before.end()) continue;
    entry->second.add(after.shape, there->net_bytes, there->net_bytes + after.net_bytes);
  }
  return entry->second;
}

}  // namespace pudica
