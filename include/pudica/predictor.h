// Predictor: what a segment of a step will need at a shape, learned online.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pudica/layer_profile.h"
#include "pudica/result.h"
#include "pudica/shape_key.h"

namespace pudica {

// How a prediction was made, from best to worst.
enum class PredictionBasis : std::uint8_t {
  kExact,         // every allocation matched to a monomial over distinct shapes
  kLeastSquares,  // polynomial fit of net and peak
  kScaled,        // one distinct shape seen: scaled from it
};

std::string to_string(PredictionBasis basis);

// A prediction for one segment at one shape, bytes relative to the segment's start.
struct SegmentEstimate {
  std::int64_t net_bytes = 0;
  std::int64_t peak_bytes = 0;
  // Upper bounds to plan on where the data do not identify the direction asked for;
  // equal to the point estimates when they do.
  std::int64_t net_upper_bytes = 0;
  std::int64_t peak_upper_bytes = 0;
  double seconds = 0;
  double seconds_sigma = 0;
  PredictionBasis basis = PredictionBasis::kScaled;
  bool identified = false;  // false: a direction of `shape` never varied in what was seen
};

struct PredictorOptions {
  std::int64_t granularity_bytes = 1;         // sizes are rounded up to this (CUDA: 512)
  double forgetting = 1.0;                    // of the time fits, in (0.9, 1]
  std::int32_t max_samples_per_segment = 64;  // distinct shapes kept for each segment
};

// A learned model in words and numbers, for inspection. Coefficients belong to `monomials`.
struct LearnedQuantity {
  SegmentKey segment;
  std::string quantity;  // "net_bytes", "peak_bytes", "seconds"
  PredictionBasis basis = PredictionBasis::kScaled;
  std::vector<std::string> monomials;  // "1", "batch*source", "batch*source^2", ...
  // A quantity that is a maximum has one row a term; others have one row.
  std::vector<std::vector<double>> coefficients;
  std::int64_t samples = 0;
  std::int64_t distinct_shapes = 0;
  DimensionNames dimensions;  // of the shapes seen, in their order
  ShapeKey latest_shape;      // of which a sample is kept
};

// What a segment left at a shape.
struct MeasuredNet {
  ShapeKey shape;
  std::int64_t net_bytes = 0;
};

// Learns segments online. Not thread-safe: one owner thread. Never throws on odd samples; a
// sample that contradicts the model is kept and the fit falls back to a weaker basis.
class Predictor {
 public:
  virtual ~Predictor() = default;

  virtual void observe(const SegmentKey& segment, const ShapeKey& shape,
                       const SegmentSample& sample) = 0;
  // One more time of a segment whose bytes are known; ignored where they are not.
  virtual void observe_time(const SegmentKey& segment, const ShapeKey& shape, double seconds) = 0;
  // nullopt: nothing is known of this segment.
  [[nodiscard]] virtual std::optional<SegmentEstimate> predict(const SegmentKey& segment,
                                                               const ShapeKey& shape) const = 0;
  // Distinct shapes seen of a segment.
  [[nodiscard]] virtual std::int64_t distinct_shapes(const SegmentKey& segment) const = 0;
  // Of those kept the one that last told something new; nullopt: nothing is known of this segment.
  [[nodiscard]] virtual std::optional<ShapeKey> latest_shape(const SegmentKey& segment) const = 0;
  // As measured at the shapes that are kept of it, in no order; a predictor may keep none.
  [[nodiscard]] virtual std::vector<MeasuredNet> measured_nets(
      const SegmentKey& /*segment*/) const {
    return {};
  }
  [[nodiscard]] virtual std::vector<SegmentKey> segments() const = 0;
  // Forgets one segment (drift).
  virtual void forget(const SegmentKey& segment) = 0;
  // Rises whenever a prediction may have changed.
  [[nodiscard]] virtual std::uint64_t version() const = 0;
  [[nodiscard]] virtual std::vector<LearnedQuantity> describe() const = 0;

  // The learned state as text (versioned), and back. Errors: kCorrupt.
  [[nodiscard]] virtual std::string serialize() const = 0;
  virtual Result<void> restore(const std::string& text) = 0;
};

std::unique_ptr<Predictor> make_online_predictor(const PredictorOptions& options);

}  // namespace pudica
