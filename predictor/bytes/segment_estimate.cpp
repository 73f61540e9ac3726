// How a segment's model answers: predictions and their upper bounds, and the model in words.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "predictor/bytes/segment_model.h"

namespace pudica::predictor {
namespace {

constexpr std::size_t kMostPeakTerms = 8;
// What is left open by no more than this is settled; plans hold the upper bound all the same.
constexpr double kLittleBytes = 1024;
// A fit that misses shapes by more is none: a term is missing, not a measurement noisy.
constexpr double kPoor = 0.1;
constexpr double kNoiseBytes = 16384;
constexpr std::int64_t kBeyondShare = 32;  // that a shape may take beyond what those beside it show

std::int64_t to_bytes(double value) {
  constexpr auto kLimit = static_cast<double>(std::int64_t{1} << 60);
  return std::llround(std::clamp(value, -kLimit, kLimit));
}

// A bound for `bytes` seen at a shape that the one asked for is `growth` times as large as.
double scaled_bound(double bytes, double growth) { return std::max(bytes, bytes * growth); }

// What is a sum of volumes, none of them negative, grows by no more than that of them which grows
// most: of two lengths the one that all of it may belong to.
double growth_of_volumes(std::span<const std::int64_t> now, std::span<const std::int64_t> before,
                         std::size_t volumes) {
  double growth = volumes == 0 ? 1.0 : 0.0;
  for (std::size_t i = 1; i <= volumes; ++i) {
    growth = std::max(growth, static_cast<double>(now[i]) / static_cast<double>(before[i]));
  }
  return growth;
}

void make_consistent(SegmentEstimate& estimate) {
  estimate.peak_bytes = std::max({estimate.peak_bytes, estimate.net_bytes, std::int64_t{0}});
  estimate.net_upper_bytes = std::max(estimate.net_upper_bytes, estimate.net_bytes);
  estimate.peak_upper_bytes =
      std::max({estimate.peak_upper_bytes, estimate.peak_bytes, estimate.net_upper_bytes});
}

// The shape moved to a value that was seen in every dimension that never varied, and how much
// larger the one asked for is in those.
struct Projection {
  ShapeKey shape;
  double growth = 1;
};

Projection project(const ShapeKey& shape, const std::vector<StoredSample>& samples) {
  std::array<std::int64_t, ShapeKey::kMaxDimensions> values{};
  Projection projection;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t seen = samples.front().shape[d];
    const bool varied = std::ranges::any_of(
        samples, [&](const StoredSample& sample) { return sample.shape[d] != seen; });
    values[d] = varied ? shape[d] : seen;
    if (varied || seen < 1) continue;
    projection.growth *= static_cast<double>(shape[d]) / static_cast<double>(seen);
  }
  projection.shape = ShapeKey(std::span<const std::int64_t>(values.data(), shape.size()));
  return projection;
}

}  // namespace

PredictionBasis SegmentModel::basis() const {
  if (samples_.size() < 2) return PredictionBasis::kScaled;
  if (groups_.empty() || groups_.front().model.interpolates()) {
    return PredictionBasis::kLeastSquares;
  }
  return PredictionBasis::kExact;
}

std::optional<SegmentEstimate> SegmentModel::predict(const ShapeKey& shape) const {
  if (shape.size() != dimensions() || samples_.empty()) return std::nullopt;
  Monomials buffer{};
  const auto monomials = evaluate(shape, buffer);
  SegmentEstimate estimate;
  if (const StoredSample* seen = find(shape); seen != nullptr) {
    estimate_seen(*seen, monomials, estimate);
  } else {
    estimate_bytes(shape, monomials, estimate);
    if (!estimate.identified && beyond_) narrow_to_neighbours(shape, estimate);
  }
  const TimeEstimate time = time_.predict(monomials);
  estimate.seconds = time.seconds;
  estimate.seconds_sigma = time.sigma_seconds;
  return estimate;
}

// A shape that was seen gives what was seen.
void SegmentModel::estimate_seen(const StoredSample& sample,
                                 std::span<const std::int64_t> monomials,
                                 SegmentEstimate& estimate) const {
  estimate.net_bytes = estimate.net_upper_bytes = sample.net_bytes;
  estimate.peak_bytes = estimate.peak_upper_bytes = sample.peak_bytes;
  estimate.identified = true;
  estimate.basis = PredictionBasis::kExact;
  if (samples_.size() == 1) return;
  estimate.basis = PredictionBasis::kLeastSquares;
  if (groups_.empty()) return;
  const ExactModel& model = log_for(sample.shape).group->model;
  const ExactEstimate fitted = model.predict(monomials, basis_->volume(sample.shape));
  const bool agrees =
      fitted.net_bytes == sample.net_bytes && fitted.peak_bytes == sample.peak_bytes;
  if (agrees && !model.interpolates()) estimate.basis = PredictionBasis::kExact;
}

LogChoice SegmentModel::log_for(const ShapeKey& shape) const {
  return choose_log(groups_, shape, basis_->volume(shape));
}

bool SegmentModel::is_fitted(const ShapeKey& shape, const LogChoice& log) const {
  if (!prefers_polynomials_) return false;
  if (!log.is_told_apart || !log.group->shapes_seen.surrounds(shape)) return true;
  return std::ranges::any_of(samples_, [&](const StoredSample& sample) {
    return is_alone(sample) && log.group->shapes_seen.surrounds(sample.shape);
  });
}

// No other shape has its log.
bool SegmentModel::is_alone(const StoredSample& sample) const {
  return sample.has_deltas &&
         std::ranges::find(groups_, sample.signature, &LogGroup::signature) == groups_.end();
}

void SegmentModel::estimate_bytes(const ShapeKey& shape, std::span<const std::int64_t> monomials,
                                  SegmentEstimate& estimate) const {
  estimate.basis = basis();
  if (groups_.empty()) {
    if (polynomials_) {
      estimate_fitted(shape, estimate);
    } else {
      estimate_scaled(shape, estimate);
    }
    return;
  }
  const LogChoice log = log_for(shape);
  if (is_fitted(shape, log)) {
    estimate.basis = PredictionBasis::kLeastSquares;
    return estimate_fitted(shape, estimate);
  }
  const ExactModel& model = log.group->model;
  ExactEstimate exact = model.predict(monomials, basis_->volume(shape));
  for (const LogGroup* rival : log.rivals) {
    const ExactEstimate other = rival->model.predict(monomials, basis_->volume(shape));
    const bool same = other.net_bytes == exact.net_bytes && other.peak_bytes == exact.peak_bytes;
    exact.identified = exact.identified && same;
    exact.net_upper_bytes = std::max(exact.net_upper_bytes, other.net_upper_bytes);
    exact.peak_upper_bytes = std::max(exact.peak_upper_bytes, other.peak_upper_bytes);
  }
  const StoredSample* const lone = lone_like(shape, *log.group);
  const bool is_moved = lone != nullptr && move_to_lone(shape, *lone, model, exact);
  estimate.net_bytes = exact.net_bytes;
  estimate.peak_bytes = exact.peak_bytes;
  estimate.net_upper_bytes = exact.net_upper_bytes;
  estimate.peak_upper_bytes = exact.peak_upper_bytes;
  estimate.identified = exact.identified && samples_.size() >= 2;
  make_consistent(estimate);
  if (!estimate.identified && log.rivals.empty()) sharpen_bounds(shape, monomials, estimate);
  if (is_moved) estimate.identified = false;
  if (samples_.size() >= 2 && model.interpolates()) {
    estimate.basis = PredictionBasis::kLeastSquares;
  }
}

// The nearest sample whose log no other shape has, where whole vectors or a length tell that the
// shape is one of its like and none of the group's. Null: there is none.
const StoredSample* SegmentModel::lone_like(const ShapeKey& shape, const LogGroup& group) const {
  const StoredSample* found = nullptr;
  if (!has_lone_) return found;
  double nearest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    const StoredSample& sample = samples_[i];
    const bool gave_way = sample.order < group.first_order && !is_recent(i);
    if (!is_alone(sample) || gave_way || ones_of(sample.shape) != ones_of(shape)) continue;
    const double volume = basis_->volume(sample.shape);
    ShapeSet alone;
    alone.add(sample.shape, volume);
    const double away = std::abs(volume - basis_->volume(shape));
    if (away >= nearest || !alone.has_its_like(shape, group.shapes_seen)) continue;
    found = &sample;
    nearest = away;
  }
  return found;
}

// By what the lone one had beyond the group there, as the shape is larger or smaller; at most all
// of it, and more as the square of the shape. False: it had the same, in another order.
bool SegmentModel::move_to_lone(const ShapeKey& shape, const StoredSample& lone,
                                const ExactModel& model, ExactEstimate& exact) const {
  Monomials buffer{};
  const double volume = basis_->volume(lone.shape);
  const ExactEstimate there = model.predict(evaluate(lone.shape, buffer), volume);
  if (lone.net_bytes == there.net_bytes && lone.peak_bytes == there.peak_bytes) return false;
  const double growth = basis_->volume(shape) / volume;
  const auto move = [growth](std::int64_t beyond, std::int64_t& bytes, std::int64_t& upper) {
    const auto moved = static_cast<double>(beyond);
    bytes += to_bytes(moved * growth);
    upper += to_bytes(scaled_bound(std::max(0.0, moved), growth * growth));
  };
  move(lone.net_bytes - there.net_bytes, exact.net_bytes, exact.net_upper_bytes);
  move(lone.peak_bytes - there.peak_bytes, exact.peak_bytes, exact.peak_upper_bytes);
  exact.identified = false;
  return true;
}

// A log that few shapes share leaves the sizes in it open in more ways than the sums of all shapes
// do: the lower of the two bounds holds.
void SegmentModel::sharpen_bounds(const ShapeKey& shape, std::span<const std::int64_t> monomials,
                                  SegmentEstimate& estimate) const {
  if (!polynomials_ || project(shape, samples_).shape != shape) return;
  const auto net = polynomials_->net().highest(monomials);
  const auto peak = polynomials_->peak().highest(monomials);
  if (!net || !peak || !polynomials_->is_tested()) return;
  estimate.net_upper_bytes = std::min(estimate.net_upper_bytes, to_bytes(std::ceil(*net)));
  estimate.peak_upper_bytes = std::min(estimate.peak_upper_bytes, to_bytes(std::ceil(*peak)));
  make_consistent(estimate);
  const std::int64_t open = std::max(estimate.net_upper_bytes - estimate.net_bytes,
                                     estimate.peak_upper_bytes - estimate.peak_bytes);
  estimate.identified = static_cast<double>(open) <= kLittleBytes;
}

void SegmentModel::estimate_fitted(const ShapeKey& shape, SegmentEstimate& estimate) const {
  Monomials buffer{};
  const auto monomials = evaluate(shape, buffer);
  estimate.net_bytes = to_bytes(polynomials_->net().value(monomials));
  estimate.peak_bytes = to_bytes(polynomials_->peak().value(monomials));
  const Projection projection = project(shape, samples_);
  Monomials projected_buffer{};
  const auto projected = evaluate(projection.shape, projected_buffer);
  bool is_open = false;  // rivals say more than the noise does, or the fit is no fit
  const auto bound = [&](const PolynomialFit::Quantity& fit) {
    const double slack = fit.slack(projected);
    const double along = fit.value(projected) + slack;
    const double most = fit.highest(projected).value_or(along);
    is_open = is_open || most - along > std::max(slack, kLittleBytes);
    is_open = is_open || slack > std::max(kPoor * std::abs(along), kNoiseBytes);
    return scaled_bound(most, projection.growth);
  };
  double net_upper = bound(polynomials_->net());
  double peak_upper = bound(polynomials_->peak());
  const bool tested = polynomials_->is_tested();
  if (!tested) {
    // No residual to judge by: at least what each sample gives when scaled.
    for (const StoredSample& sample : samples_) {
      Monomials before{};
      const double growth =
          growth_of_volumes(monomials, evaluate(sample.shape, before), basis_->linear_count());
      net_upper = std::max(net_upper, scaled_bound(static_cast<double>(sample.net_bytes), growth));
      peak_upper =
          std::max(peak_upper, scaled_bound(static_cast<double>(sample.peak_bytes), growth));
    }
  }
  estimate.identified = tested && !is_open && projection.shape == shape;
  estimate.net_upper_bytes = to_bytes(std::ceil(net_upper));
  estimate.peak_upper_bytes = to_bytes(std::ceil(peak_upper));
  make_consistent(estimate);
}

// A loss in chunks takes no more from its first full chunk on: no polynomial says so. That it goes
// on so is no law: what is told of neighbours is never settled.
void SegmentModel::narrow_to_neighbours(const ShapeKey& shape, SegmentEstimate& estimate) const {
  const auto found = neighbours_of(shape, samples_, *basis_);
  if (!found) return;
  const double below = basis_->volume(found->below->shape);
  const double between = basis_->volume(found->above->shape) - below;
  const double share = between > 0 ? (basis_->volume(shape) - below) / between : 1.0;
  const auto narrow = [&](std::int64_t one, std::int64_t other, std::int64_t most,
                          std::int64_t& bytes, std::int64_t& upper) {
    const std::int64_t bound = most + std::abs(most) / kBeyondShare;
    if (bytes >= std::min(one, other) && bytes <= most) {
      upper = std::min(upper, bound);
    } else {
      bytes = to_bytes(std::lerp(static_cast<double>(one), static_cast<double>(other), share));
      upper = bound;
    }
  };
  narrow(found->below->net_bytes, found->above->net_bytes,
         found->most_net_bytes + beyond_->net_bytes, estimate.net_bytes, estimate.net_upper_bytes);
  narrow(found->below->peak_bytes, found->above->peak_bytes,
         found->most_peak_bytes + beyond_->peak_bytes, estimate.peak_bytes,
         estimate.peak_upper_bytes);
  make_consistent(estimate);
}

void SegmentModel::estimate_scaled(const ShapeKey& shape, SegmentEstimate& estimate) const {
  const StoredSample& sample = samples_.front();
  const bool constant = key_.kind == SegmentKind::kOptimizer;
  const double growth = constant ? 1.0 : basis_->volume(shape) / basis_->volume(sample.shape);
  Monomials now{};
  Monomials before{};
  const double most = constant
                          ? 1.0
                          : growth_of_volumes(evaluate(shape, now), evaluate(sample.shape, before),
                                              basis_->linear_count());
  const auto net = static_cast<double>(sample.net_bytes);
  const auto peak = static_cast<double>(sample.peak_bytes);
  estimate.net_bytes = to_bytes(net * growth);
  estimate.peak_bytes = to_bytes(peak * growth);
  estimate.net_upper_bytes = to_bytes(std::ceil(scaled_bound(net, most)));
  estimate.peak_upper_bytes = to_bytes(std::ceil(scaled_bound(peak, most)));
  estimate.identified = false;
  make_consistent(estimate);
}

LearnedQuantity SegmentModel::describe_rows(const std::string& quantity,
                                            const PolynomialRows& rows) const {
  LearnedQuantity learned;
  learned.segment = key_;
  learned.quantity = quantity;
  learned.basis = prefers_polynomials_ ? PredictionBasis::kLeastSquares : basis();
  learned.samples = observations_;
  learned.distinct_shapes = distinct_shapes();
  if (dimensions() > 0) learned.dimensions = samples_.front().shape.names();
  if (dimensions() > 0) learned.latest_shape = samples_.back().shape;
  for (const std::uint8_t monomial : rows.monomials) {
    learned.monomials.push_back(basis_->name(monomial, learned.dimensions));
  }
  learned.coefficients = rows.coefficients;
  return learned;
}

// The shapes seen, and the same up to eight times as long: what extrapolation may meet.
std::vector<std::vector<std::int64_t>> SegmentModel::shapes_to_describe() const {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const StoredSample& sample : samples_) {
    for (const std::int64_t factor : {1, 2, 4, 8}) {
      std::array<std::int64_t, ShapeKey::kMaxDimensions> values{};
      for (std::size_t d = 0; d < sample.shape.size(); ++d) {
        values[d] = std::clamp<std::int64_t>(sample.shape[d], 1, kLargestValue);
        if (d > 0) values[d] *= factor;
      }
      const ShapeKey shape(std::span<const std::int64_t>(values.data(), dimensions()));
      Monomials buffer{};
      const auto monomials = evaluate(shape, buffer);
      shapes.emplace_back(monomials.begin(), monomials.end());
    }
  }
  return shapes;
}

std::vector<LearnedQuantity> SegmentModel::describe() const {
  std::vector<LearnedQuantity> learned;
  if (samples_.empty()) return learned;
  if (!groups_.empty() && !prefers_polynomials_) {
    const ExactModel& model = groups_.front().model;
    learned.push_back(describe_rows("net_bytes", model.describe_net()));
    learned.push_back(
        describe_rows("peak_bytes", model.describe_peak(shapes_to_describe(), kMostPeakTerms)));
  } else if (polynomials_) {
    learned.push_back(describe_rows("net_bytes", polynomials_->net().rows()));
    learned.push_back(describe_rows("peak_bytes", polynomials_->peak().rows()));
  } else {
    const auto term = static_cast<std::uint8_t>(
        key_.kind == SegmentKind::kOptimizer ? 0 : basis_->linear_count());
    const double volume = term == 0 ? 1.0 : basis_->volume(samples_.front().shape);
    const auto rows = [&](std::int64_t bytes) {
      return PolynomialRows{{term}, {{static_cast<double>(bytes) / volume}}};
    };
    learned.push_back(describe_rows("net_bytes", rows(samples_.front().net_bytes)));
    learned.push_back(describe_rows("peak_bytes", rows(samples_.front().peak_bytes)));
  }
  if (time_.samples() > 0) {
    PolynomialRows rows;
    rows.coefficients.push_back(time_.coefficients());
    rows.monomials.resize(basis_->time_count());
    std::iota(rows.monomials.begin(), rows.monomials.end(), std::uint8_t{0});
    learned.push_back(describe_rows("seconds", rows));
    learned.back().basis =
        samples_.size() < 2 ? PredictionBasis::kScaled : PredictionBasis::kLeastSquares;
    learned.back().samples = time_.samples();
  }
  return learned;
}

}  // namespace pudica::predictor
