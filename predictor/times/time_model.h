// The time of a segment: one regularised least-squares fit over all samples of a class, relative
// to the volume of the shape, robust to stalls of the machine, and as near to proportion to the
// volume as the samples leave it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "predictor/bytes/monomials.h"

namespace pudica::predictor {

struct TimeEstimate {
  double seconds = 0;
  double sigma_seconds = 0;
};

// Everything a fit is made of, plain, so that it can be written to a file and read back.
struct TimeState {
  static constexpr double kUntoldRidge = 1e-3;

  // One early sample: features relative to the volume, and time relative to it.
  struct Early {
    std::vector<double> features;
    double rate = 0;
  };

  // What was seen, and so what is sensible.
  struct Bounds {
    double least_rate = 0;  // seconds per relative volume
    double largest_rate = 0;
    double least_volume = 0;  // relative
    double largest_volume = 0;

    void include(double rate, double volume);
    [[nodiscard]] bool is_valid() const;
  };

  std::int64_t samples = 0;
  double reference_volume = 0;  // of the first shape
  std::vector<double> scales;   // of the features, from the first shape
  std::vector<Early> early;     // until kEarly samples are there
  double ridge = kUntoldRidge;  // of what is not proportional to the volume; told by the early ones
  std::vector<double> gram;     // row-major, weighted; afterwards
  std::vector<double> moments;
  std::vector<double> ratios;        // the last measured / predicted, oldest first
  std::vector<double> coefficients;  // current
  std::vector<double> published;     // what predictions use
  double published_spread = 0;       // relative
  Bounds bounds;
  Bounds published_bounds;
};

// Predictions change only when the fit has moved noticeably ("published"), so that plans made on
// them stay valid. Not thread-safe.
class TimeModel {
 public:
  static constexpr std::size_t kEarly = 32;
  static constexpr std::size_t kRatios = 31;

  TimeModel(const MonomialBasis& basis, double forgetting)
      : basis_(&basis), forgetting_(forgetting) {}

  // True if predictions changed. Times that are not positive and finite are ignored.
  bool observe(const ShapeKey& shape, double seconds);
  [[nodiscard]] TimeEstimate predict(std::span<const std::int64_t> monomials) const;

  [[nodiscard]] std::int64_t samples() const { return state_.samples; }
  // Of the monomials 0 .. time_count()-1, in seconds; empty without samples.
  [[nodiscard]] std::vector<double> coefficients() const;

  [[nodiscard]] const TimeState& state() const { return state_; }
  // False if the state does not belong to a basis of this size; nothing is changed then.
  [[nodiscard]] bool set_state(TimeState state);

 private:
  using Features = std::vector<double>;

  [[nodiscard]] double relative_volume(std::span<const std::int64_t> monomials) const;
  [[nodiscard]] Features scaled_features(std::span<const std::int64_t> monomials) const;
  void add_early(const Features& features, double rate);
  void add_late(const Features& features, double rate);
  // For the early samples with these rates.
  [[nodiscard]] double suited_ridge(const std::vector<double>& rates) const;
  // Coefficients of a rate of 1 at every shape.
  [[nodiscard]] std::vector<double> proportional() const;
  void accumulate(const Features& features, double rate, double forgetting);
  void solve();
  void note_ratio(double ratio);
  [[nodiscard]] double clipped(double ratio) const;
  bool publish_if_moved(const Features& features);

  const MonomialBasis* basis_;
  double forgetting_;
  TimeState state_;
};

}  // namespace pudica::predictor
