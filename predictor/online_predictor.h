// The predictor of pudica: one model a segment, learned online.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "predictor/bytes/segment_model.h"
#include "pudica/predictor.h"

namespace pudica::predictor {

using SegmentModels = std::map<SegmentKey, SegmentModel>;

// Options outside of what is documented are moved to the nearest value that is.
PredictorOptions sanitized(PredictorOptions options);

// See Predictor. A shape with other dimensions than those seen of a segment starts it afresh.
class OnlinePredictor final : public Predictor {
 public:
  explicit OnlinePredictor(const PredictorOptions& options);

  void observe(const SegmentKey& segment, const ShapeKey& shape,
               const SegmentSample& sample) override;
  void observe_time(const SegmentKey& segment, const ShapeKey& shape, double seconds) override;
  [[nodiscard]] std::optional<SegmentEstimate> predict(const SegmentKey& segment,
                                                       const ShapeKey& shape) const override;
  [[nodiscard]] std::int64_t distinct_shapes(const SegmentKey& segment) const override;
  [[nodiscard]] std::optional<ShapeKey> latest_shape(const SegmentKey& segment) const override;
  [[nodiscard]] std::vector<MeasuredNet> measured_nets(const SegmentKey& segment) const override;
  [[nodiscard]] std::vector<SegmentKey> segments() const override;
  void forget(const SegmentKey& segment) override;
  [[nodiscard]] std::uint64_t version() const override { return version_; }
  [[nodiscard]] std::vector<LearnedQuantity> describe() const override;
  [[nodiscard]] std::string serialize() const override;
  Result<void> restore(const std::string& text) override;

 private:
  PredictorOptions options_;
  SegmentModels models_;
  std::uint64_t version_ = 0;
};

}  // namespace pudica::predictor
