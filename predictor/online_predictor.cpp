#include "predictor/online_predictor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "predictor/predictor_file.h"

namespace pudica {
namespace predictor {

PredictorOptions sanitized(PredictorOptions options) {
  constexpr std::int64_t kLargestGranularity = std::int64_t{1} << 30;
  options.granularity_bytes =
      std::clamp<std::int64_t>(options.granularity_bytes, 1, kLargestGranularity);
  options.forgetting = options.forgetting > 0.9 ? std::min(options.forgetting, 1.0) : 0.9;
  options.max_samples_per_segment = std::clamp(options.max_samples_per_segment, 2, 4096);
  return options;
}

OnlinePredictor::OnlinePredictor(const PredictorOptions& options) : options_(sanitized(options)) {}

void OnlinePredictor::observe(const SegmentKey& segment, const ShapeKey& shape,
                              const SegmentSample& sample) {
  auto entry = models_.find(segment);
  if (entry != models_.end() && entry->second.dimensions() != shape.size()) {
    models_.erase(entry);
    entry = models_.end();
  }
  if (entry == models_.end()) {
    entry = models_.emplace(segment, SegmentModel(segment, options_, shape.size())).first;
  }
  if (entry->second.observe(shape, sample)) ++version_;
}

void OnlinePredictor::observe_time(const SegmentKey& segment, const ShapeKey& shape,
                                   double seconds) {
  const auto entry = models_.find(segment);
  if (entry == models_.end() || entry->second.dimensions() != shape.size()) return;
  if (entry->second.observe_time(shape, seconds)) ++version_;
}

std::optional<SegmentEstimate> OnlinePredictor::predict(const SegmentKey& segment,
                                                        const ShapeKey& shape) const {
  const auto entry = models_.find(segment);
  if (entry == models_.end()) return std::nullopt;
  return entry->second.predict(shape);
}

std::int64_t OnlinePredictor::distinct_shapes(const SegmentKey& segment) const {
  const auto entry = models_.find(segment);
  return entry == models_.end() ? 0 : entry->second.distinct_shapes();
}

std::optional<ShapeKey> OnlinePredictor::latest_shape(const SegmentKey& segment) const {
  const auto entry = models_.find(segment);
  if (entry == models_.end() || entry->second.samples().empty()) return std::nullopt;
  return entry->second.samples().back().shape;
}

std::vector<MeasuredNet> OnlinePredictor::measured_nets(const SegmentKey& segment) const {
  std::vector<MeasuredNet> nets;
  const auto entry = models_.find(segment);
  if (entry == models_.end()) return nets;
  for (const StoredSample& sample : entry->second.samples()) {
    nets.push_back({sample.shape, sample.net_bytes});
  }
  return nets;
}

std::vector<SegmentKey> OnlinePredictor::segments() const {
  std::vector<SegmentKey> keys;
  keys.reserve(models_.size());
  for (const auto& entry : models_) keys.push_back(entry.first);
  return keys;
}

void OnlinePredictor::forget(const SegmentKey& segment) {
  if (models_.erase(segment) > 0) ++version_;
}

std::vector<LearnedQuantity> OnlinePredictor::describe() const {
  std::vector<LearnedQuantity> all;
  for (const auto& entry : models_) {
    for (LearnedQuantity& quantity : entry.second.describe()) all.push_back(std::move(quantity));
  }
  return all;
}

std::string OnlinePredictor::serialize() const { return write_models(models_); }

Result<void> OnlinePredictor::restore(const std::string& text) {
  auto models = read_models(text, options_);
  if (!models) return models.error();
  models_ = std::move(*models);
  ++version_;
  return {};
}

}  // namespace predictor

std::string to_string(PredictionBasis basis) {
  switch (basis) {
    case PredictionBasis::kExact:
      return "exact";
    case PredictionBasis::kLeastSquares:
      return "least squares";
    case PredictionBasis::kScaled:
      return "scaled";
  }
  return "unknown";
}

std::unique_ptr<Predictor> make_online_predictor(const PredictorOptions& options) {
  return std::make_unique<predictor::OnlinePredictor>(options);
}

}  // namespace pudica
