#include "predictor/times/time_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include <Eigen/Dense>

#include "predictor/times/time_ridge.h"

namespace pudica::predictor {
namespace {

constexpr double kClip = 1.5;    // a time further than this from the usual ratio is an outlier
constexpr double kMoved = 0.02;  // relative change of a prediction worth publishing
constexpr double kSpreadMoved = 0.05;  // absolute change of the relative spread, likewise
constexpr double kUnknownSpread = 0.5;
constexpr double kLongestSeconds = 1e6;
constexpr int kEarlyPasses = 4;

double median(std::vector<double> values) {
  if (values.empty()) return 1;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

double dot(std::span<const double> left, std::span<const double> right) {
  return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
}

}  // namespace

void TimeState::Bounds::include(double rate, double volume) {
  const bool is_first = largest_volume == 0;
  least_rate = is_first ? rate : std::min(least_rate, rate);
  largest_rate = is_first ? rate : std::max(largest_rate, rate);
  least_volume = is_first ? volume : std::min(least_volume, volume);
  largest_volume = is_first ? volume : std::max(largest_volume, volume);
}

bool TimeState::Bounds::is_valid() const {
  return std::isfinite(largest_rate) && std::isfinite(largest_volume) && least_rate > 0 &&
         largest_rate >= least_rate && least_volume > 0 && largest_volume >= least_volume;
}

double TimeModel::relative_volume(std::span<const std::int64_t> monomials) const {
  if (basis_->linear_count() == 0) return 1.0 / state_.reference_volume;
  double volume = 0;
  for (std::size_t i = 1; i <= basis_->linear_count(); ++i) {
    volume += static_cast<double>(monomials[i]);
  }
  return volume / state_.reference_volume;
}

// Features over the volume: noise of times is proportional to them, so every sample weighs alike.
TimeModel::Features TimeModel::scaled_features(std::span<const std::int64_t> monomials) const {
  Features features(basis_->time_count());
  const double volume = relative_volume(monomials);
  for (std::size_t i = 0; i < features.size(); ++i) {
    features[i] = static_cast<double>(monomials[i]) / state_.scales[i] / volume;
  }
  return features;
}

bool TimeModel::observe(const ShapeKey& shape, double seconds) {
  if (!std::isfinite(seconds) || seconds <= 0 || seconds > kLongestSeconds) return false;
  std::array<std::int64_t, kMostMonomials> monomials{};
  basis_->evaluate(shape, monomials);
  const std::size_t count = basis_->time_count();
  if (state_.samples == 0) {
    state_ = TimeState{};
    state_.reference_volume = basis_->volume(shape);
    state_.scales.assign(monomials.begin(), monomials.begin() + static_cast<std::ptrdiff_t>(count));
    state_.gram.assign(count * count, 0.0);
    state_.moments.assign(count, 0.0);
    state_.coefficients.assign(count, 0.0);
  }
  const double volume = relative_volume(monomials);
  const double rate = seconds / volume;
  const Features features = scaled_features(monomials);
  ++state_.samples;
  if (state_.samples <= static_cast<std::int64_t>(kEarly)) {
    add_early(features, rate);
  } else {
    add_late(features, rate);
  }
  state_.bounds.include(rate, volume);
  return publish_if_moved(features);
}

// Few samples: fit all of them again, clipping those far from the median ratio.
void TimeModel::add_early(const Features& features, double rate) {
  state_.early.push_back({features, rate});
  std::vector<double> used(state_.early.size());
  for (std::size_t i = 0; i < used.size(); ++i) used[i] = state_.early[i].rate;
  const double usual = median(used);
  for (double& value : used) value = std::clamp(value, usual / 2.5, usual * 2.5);
  state_.ridge = suited_ridge(used);
  for (int pass = 0; pass < kEarlyPasses; ++pass) {
    std::ranges::fill(state_.gram, 0.0);
    std::ranges::fill(state_.moments, 0.0);
    for (std::size_t i = 0; i < used.size(); ++i) {
      accumulate(state_.early[i].features, used[i], 1.0);
    }
    solve();
    state_.ratios.clear();
    for (const auto& early : state_.early) {
      const double predicted = dot(early.features, state_.coefficients);
      note_ratio(predicted > 0 ? early.rate / predicted : 1.0);
    }
    for (std::size_t i = 0; i < used.size(); ++i) {
      const double predicted = dot(state_.early[i].features, state_.coefficients);
      if (!(predicted > 0)) continue;
      used[i] = predicted * clipped(state_.early[i].rate / predicted);
    }
  }
  if (state_.early.size() == kEarly) state_.early.clear();
}

void TimeModel::add_late(const Features& features, double rate) {
  const double predicted = dot(features, state_.coefficients);
  double used = rate;
  if (predicted > 0) {
    note_ratio(rate / predicted);
    used = predicted * clipped(rate / predicted);
  }
  accumulate(features, used, forgetting_);
  solve();
}

std::vector<double> TimeModel::proportional() const {
  std::vector<double> coefficients(state_.scales.size(), 0.0);
  const std::size_t volumes = basis_->linear_count();
  if (volumes == 0) coefficients.front() = state_.scales.front();
  for (std::size_t i = 1; i <= volumes; ++i) coefficients[i] = state_.scales[i];
  for (double& value : coefficients) value /= state_.reference_volume;
  return coefficients;
}

double TimeModel::suited_ridge(const std::vector<double>& rates) const {
  const auto rows = static_cast<Eigen::Index>(rates.size());
  const auto columns = static_cast<Eigen::Index>(state_.scales.size());
  Eigen::MatrixXd features(rows, columns);
  for (Eigen::Index i = 0; i < rows; ++i) {
    const Features& row = state_.early[static_cast<std::size_t>(i)].features;
    features.row(i) = Eigen::Map<const Eigen::RowVectorXd>(row.data(), columns);
  }
  const std::vector<double> along = proportional();
  return ridge_by_leaving_out(features, Eigen::Map<const Eigen::VectorXd>(rates.data(), rows),
                              Eigen::Map<const Eigen::VectorXd>(along.data(), columns),
                              state_.ridge);
}

void TimeModel::accumulate(const Features& features, double rate, double forgetting) {
  const std::size_t count = features.size();
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) {
      double& entry = state_.gram[i * count + j];
      entry = entry * forgetting + features[i] * features[j];
    }
    state_.moments[i] = state_.moments[i] * forgetting + features[i] * rate;
  }
}

void TimeModel::solve() {
  const auto count = static_cast<Eigen::Index>(state_.moments.size());
  const std::vector<double> along = proportional();
  const Eigen::MatrixXd gram =
      Eigen::Map<const Eigen::MatrixXd>(state_.gram.data(), count, count) +
      ridge_penalty(Eigen::Map<const Eigen::VectorXd>(along.data(), count), state_.ridge);
  const Eigen::VectorXd moments = Eigen::Map<const Eigen::VectorXd>(state_.moments.data(), count);
  const Eigen::VectorXd solution = gram.ldlt().solve(moments);
  if (solution.allFinite()) {
    state_.coefficients.assign(solution.begin(), solution.end());
  }
}

void TimeModel::note_ratio(double ratio) {
  if (state_.ratios.size() == kRatios) state_.ratios.erase(state_.ratios.begin());
  state_.ratios.push_back(ratio);
}

double TimeModel::clipped(double ratio) const {
  const double usual = median(state_.ratios);
  return std::clamp(ratio, usual / kClip, usual * kClip);
}

bool TimeModel::publish_if_moved(const Features& features) {
  double spread = kUnknownSpread;
  if (state_.ratios.size() >= 3) {
    const double usual = median(state_.ratios);
    std::vector<double> distances;
    for (const double ratio : state_.ratios) distances.push_back(std::abs(ratio - usual));
    spread = 1.4826 * median(distances);
  }
  const double before = state_.published.empty() ? 0 : dot(features, state_.published);
  const double after = dot(features, state_.coefficients);
  const bool moved = std::abs(after - before) > kMoved * std::abs(before) ||
                     std::abs(spread - state_.published_spread) > kSpreadMoved;
  if (!moved) return false;
  state_.published = state_.coefficients;
  state_.published_spread = spread;
  state_.published_bounds = state_.bounds;
  return true;
}

TimeEstimate TimeModel::predict(std::span<const std::int64_t> monomials) const {
  if (state_.samples == 0) return {};
  const double volume = relative_volume(monomials);
  double rate = 0;
  for (std::size_t i = 0; i < state_.published.size(); ++i) {
    rate += state_.published[i] * static_cast<double>(monomials[i]) / state_.scales[i] / volume;
  }
  // Outside of what was seen a fit may go anywhere; times per volume move slowly.
  const TimeState::Bounds& seen = state_.published_bounds;
  const double beyond = std::max(1.0, volume / seen.largest_volume);
  const double below = std::min(1.0, volume / seen.least_volume);
  rate = std::clamp(rate, 0.25 * seen.least_rate, 4.0 * seen.largest_rate * beyond / below);
  TimeEstimate estimate;
  estimate.seconds = rate * volume;
  estimate.sigma_seconds = estimate.seconds * state_.published_spread * (2.0 * beyond - 1.0);
  return estimate;
}

std::vector<double> TimeModel::coefficients() const {
  std::vector<double> unscaled(state_.published.size());
  for (std::size_t i = 0; i < unscaled.size(); ++i) {
    unscaled[i] = state_.published[i] / state_.scales[i];
  }
  return unscaled;
}

bool TimeModel::set_state(TimeState state) {
  const std::size_t count = basis_->time_count();
  const auto all_finite = [](const std::vector<double>& values) {
    return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
  };
  if (state.samples < 0) return false;
  if (state.samples == 0) {
    state_ = TimeState{};
    return true;
  }
  const bool sized = state.scales.size() == count && state.gram.size() == count * count &&
                     state.moments.size() == count && state.coefficients.size() == count &&
                     state.published.size() == count && state.ratios.size() <= kRatios &&
                     state.early.size() < kEarly;
  if (!sized || !all_finite(state.scales) || !all_finite(state.gram) ||
      !all_finite(state.moments) || !all_finite(state.coefficients) ||
      !all_finite(state.published) || !all_finite(state.ratios)) {
    return false;
  }
  for (const TimeState::Early& early : state.early) {
    if (early.features.size() != count || !all_finite(early.features)) return false;
    if (!std::isfinite(early.rate)) return false;
  }
  const auto early = static_cast<std::int64_t>(state.early.size());
  if (early != (state.samples < static_cast<std::int64_t>(kEarly) ? state.samples : 0))
    return false;
  const bool is_valid = state.bounds.is_valid() && state.published_bounds.is_valid() &&
                        std::isfinite(state.published_spread) && state.reference_volume > 0 &&
                        std::isfinite(state.reference_volume) && std::isfinite(state.ridge) &&
                        state.ridge > 0 && state.ridge <= kLargestRidge &&
                        std::ranges::all_of(state.scales, [](double scale) { return scale >= 1; });
  if (!is_valid) return false;
  state_ = std::move(state);
  return true;
}

}  // namespace pudica::predictor
