// What is known of one segment: its samples at distinct shapes, and the models made of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "predictor/bytes/exact_model.h"
#include "predictor/bytes/log_group.h"
#include "predictor/bytes/monomials.h"
#include "predictor/bytes/neighbours.h"
#include "predictor/bytes/polynomial_fit.h"
#include "predictor/bytes/stored_sample.h"
#include "predictor/times/time_model.h"
#include "pudica/predictor.h"

namespace pudica::predictor {

// Learns one segment. Bytes: the exact model of the log that most recent shapes share, or of
// another where something tells that the shape is one of its (log_group.h), where two shapes share
// one and polynomials of net and peak do not fit all shapes far better (loops as long as the batch:
// a log is that of one length); else those, but among the shapes of one log; else the one shape
// scaled. Memory is bounded by the
// distinct shapes kept: the oldest goes first, the extremes of each dimension stay. A full store
// does not take in what the exact model predicts already. Not thread-safe.
class SegmentModel {
 public:
  SegmentModel(SegmentKey key, const PredictorOptions& options, std::size_t dimensions);

  // True if predictions may have changed. Requires: shape.size() == dimensions().
  bool observe(const ShapeKey& shape, const SegmentSample& sample);
  bool observe_time(const ShapeKey& shape, double seconds) { return time_.observe(shape, seconds); }
  // nullopt for a shape with other dimensions.
  [[nodiscard]] std::optional<SegmentEstimate> predict(const ShapeKey& shape) const;
  [[nodiscard]] std::vector<LearnedQuantity> describe() const;

  [[nodiscard]] std::size_t dimensions() const { return basis_->dimensions(); }
  [[nodiscard]] std::int64_t distinct_shapes() const {
    return static_cast<std::int64_t>(samples_.size());
  }

  [[nodiscard]] const std::vector<StoredSample>& samples() const { return samples_; }
  [[nodiscard]] std::int64_t observations() const { return observations_; }
  [[nodiscard]] const TimeModel& time() const { return time_; }
  // Fills a fresh model. False if the parts do not fit together: the model is then of no use.
  bool set_state(std::vector<StoredSample> samples, std::int64_t observations, TimeState time);

 private:
  using Monomials = std::array<std::int64_t, kMostMonomials>;

  [[nodiscard]] std::span<const std::int64_t> evaluate(const ShapeKey& shape,
                                                       Monomials& values) const;
  StoredSample make_stored(const ShapeKey& shape, const SegmentSample& sample) const;
  bool store(StoredSample sample);
  [[nodiscard]] bool is_reordered(const StoredSample& known, const StoredSample& sample) const;
  [[nodiscard]] bool is_predicted_exactly(const StoredSample& sample) const;
  [[nodiscard]] bool is_settled() const;
  [[nodiscard]] bool is_extreme(const ShapeKey& shape, std::size_t skipped) const;
  void evict_one();
  [[nodiscard]] const StoredSample* find(const ShapeKey& shape) const;

  // Which log a segment produces is judged by its last shapes.
  [[nodiscard]] bool is_recent(std::size_t index) const;
  // Sums of bytes that differ by no more are the same.
  [[nodiscard]] std::int64_t tolerance_bytes() const {
    return std::max<std::int64_t>(options_.granularity_bytes, 8);
  }
  void refit();
  void refit_groups();
  void forget_before_the_turn();
  void refit_polynomials();
  [[nodiscard]] bool polynomials_fit_better() const;
  [[nodiscard]] std::vector<LogGroup> rank_groups() const;
  [[nodiscard]] bool contradicts_recent(const ExactModel& model) const;
  [[nodiscard]] ExactModel build_exact(std::uint64_t signature,
                                       const std::vector<LogGroup>& before) const;

  [[nodiscard]] LogChoice log_for(const ShapeKey& shape) const;
  [[nodiscard]] bool is_alone(const StoredSample& sample) const;
  // As the polynomials have it, not the logs.
  [[nodiscard]] bool is_fitted(const ShapeKey& shape, const LogChoice& log) const;
  void estimate_seen(const StoredSample& sample, std::span<const std::int64_t> monomials,
                     SegmentEstimate& estimate) const;
  void estimate_bytes(const ShapeKey& shape, std::span<const std::int64_t> monomials,
                      SegmentEstimate& estimate) const;
  void sharpen_bounds(const ShapeKey& shape, std::span<const std::int64_t> monomials,
                      SegmentEstimate& estimate) const;
  [[nodiscard]] const StoredSample* lone_like(const ShapeKey& shape, const LogGroup& group) const;
  bool move_to_lone(const ShapeKey& shape, const StoredSample& lone, const ExactModel& model,
                    ExactEstimate& exact) const;
  void estimate_fitted(const ShapeKey& shape, SegmentEstimate& estimate) const;
  void narrow_to_neighbours(const ShapeKey& shape, SegmentEstimate& estimate) const;
  void estimate_scaled(const ShapeKey& shape, SegmentEstimate& estimate) const;
  LearnedQuantity describe_rows(const std::string& quantity, const PolynomialRows& rows) const;
  [[nodiscard]] std::vector<std::vector<std::int64_t>> shapes_to_describe() const;
  [[nodiscard]] PredictionBasis basis() const;

  SegmentKey key_;
  PredictorOptions options_;
  const MonomialBasis* basis_;
  std::vector<StoredSample> samples_;  // by age of what is stored, oldest first
  std::vector<std::size_t> hashes_;    // of the samples' shapes
  std::uint64_t next_order_ = 1;
  // Order of the first sample that contradicted a settled exact model.
  std::optional<std::uint64_t> turned_at_;
  std::int64_t observations_ = 0;
  std::vector<LogGroup> groups_;              // the preferred one first
  std::optional<PolynomialFit> polynomials_;  // of all samples, where some are in no group
  bool has_lone_ = false;                     // samples that are alone, since refit()
  bool prefers_polynomials_ = false;          // but where a shape lies among those of one group
  std::optional<BeyondNeighbours> beyond_;    // where the polynomials do not fit all samples
  TimeModel time_;
};

}  // namespace pudica::predictor
