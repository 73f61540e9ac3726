#include "policy/mimose_estimator.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace pudica {

std::int64_t mimose_size(const ShapeKey& shape) {
  if (shape.size() == 0) return 0;
  return shape[shape.size() > 1 ? 1 : 0];
}

double mimose_step_peak_bytes(const StepOutcome& outcome) {
  const auto measured = static_cast<double>(outcome.peak_bytes.count()) -
                        static_cast<double>(outcome.context.base_bytes.count());
  double live = 0;
  double released = 0;          // in the head, beside its own sample
  double peak = 0;              // of the whole step, from its segments
  double peak_in_backward = 0;  // the same without the optimizer
  for (const SegmentObservation& observation : outcome.segments) {
    const SegmentKind kind = observation.key.kind;
    // The recompute's bytes are part of its layer's backward, parts of the head of the head.
    const bool is_part = kind == SegmentKind::kGap && observation.layer < 0 &&
                         observation.key.place() != SegmentKey::until_next().place();
    if (kind == SegmentKind::kRecompute || is_part) continue;
    const double reached = live + static_cast<double>(observation.sample.peak_bytes);
    peak = std::max(peak, reached);
    if (kind != SegmentKind::kOptimizer) {
      peak_in_backward = std::max(peak_in_backward, reached);
    }
    live += static_cast<double>(observation.sample.net_bytes);
    const auto own_released = static_cast<double>(observation.released_bytes.value_or(0));
    // Of the head: of all layers, also of those that tell nothing.
    if (kind == SegmentKind::kHead) live -= std::max(released, own_released);
    released += own_released;
  }
  constexpr double kAgreement = 0.01;  // relative; reserved bytes differ more, and are then used
  const bool accounted = std::abs(peak - measured) <= kAgreement * measured;
  return accounted ? peak_in_backward : measured;
}

void MimoseEstimator::expect_layers(std::size_t layers) {
  expected_layers_ = layers;
  layers_.resize(std::max(layers_.size(), layers));
}

void MimoseEstimator::collect(const StepOutcome& outcome) {
  ++collected_steps_;
  const auto size = static_cast<double>(mimose_size(outcome.context.shape));
  std::map<std::int32_t, double> saved_by_layer;
  for (const SegmentObservation& observation : outcome.segments) {
    constexpr std::int32_t kMaxLayers = 1 << 16;
    if (observation.key.kind != SegmentKind::kRecompute || observation.layer < 0 ||
        observation.layer >= kMaxLayers) {
      continue;
    }
    saved_by_layer.emplace(observation.layer, static_cast<double>(observation.sample.net_bytes));
  }
  if (saved_by_layer.empty()) return;
  const auto seen = static_cast<std::size_t>(saved_by_layer.rbegin()->first) + 1;
  layers_.resize(std::max(layers_.size(), seen));
  double saved = 0;
  for (const auto& [layer, bytes] : saved_by_layer) {
    saved += bytes;
    layers_[static_cast<std::size_t>(layer)].sizes.push_back(size);
    layers_[static_cast<std::size_t>(layer)].bytes.push_back(bytes);
  }
  const bool complete = expected_layers_ == 0 || saved_by_layer.size() == expected_layers_;
  if (collected_steps_ < 2 || !complete) return;
  whole_.sizes.push_back(size);
  whole_.bytes.push_back(mimose_step_peak_bytes(outcome) + saved);
}

void MimoseEstimator::fit() {
  for (Quantity& layer : layers_) layer.fitted = fit_quadratic(layer.sizes, layer.bytes);
  whole_.fitted = fit_quadratic(whole_.sizes, whole_.bytes);
}

std::optional<double> MimoseEstimator::layer_bytes(std::size_t layer, std::int64_t size) const {
  if (layer >= layers_.size() || !layers_[layer].fitted) return std::nullopt;
  return (*layers_[layer].fitted)(static_cast<double>(size));
}

std::optional<double> MimoseEstimator::whole_bytes(std::int64_t size) const {
  if (!whole_.fitted) return std::nullopt;
  return (*whole_.fitted)(static_cast<double>(size));
}

}  // namespace pudica
