#include "predictor/bytes/segment_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

namespace pudica::predictor {
namespace {

constexpr std::size_t kRecentShapes = 8;
constexpr std::size_t kMostGroups = 16;  // chunks that a loop goes through, from one to so many
// Shapes after which an exact model is not doubted for one odd sample, and samples that must agree
// among themselves to replace it.
constexpr std::size_t kSettledShapes = 4;
constexpr std::size_t kRecentAgreement = 3;
constexpr std::int64_t kLargestSum = kLargestValue << 14U;

std::uint64_t signature_of(std::span<const std::int64_t> deltas) {
  std::uint64_t state = 0xcbf29ce484222325ULL ^ deltas.size();
  for (const std::int64_t delta : deltas) {
    state = (state ^ static_cast<std::uint64_t>(delta > 0)) * 0x100000001b3ULL;
  }
  return state;
}

}  // namespace

bool StoredSample::has_same_bytes(const StoredSample& other) const {
  const bool same_sums = net_bytes == other.net_bytes && peak_bytes == other.peak_bytes;
  // A sample without a log says no more than its sums.
  if (!other.has_deltas) return same_sums;
  return same_sums && has_deltas && deltas == other.deltas;
}

SegmentModel::SegmentModel(SegmentKey key, const PredictorOptions& options, std::size_t dimensions)
    : key_(key),
      options_(options),
      basis_(&MonomialBasis::of(dimensions)),
      time_(*basis_, options.forgetting) {}

std::span<const std::int64_t> SegmentModel::evaluate(const ShapeKey& shape,
                                                     Monomials& values) const {
  basis_->evaluate(shape, values);
  return {values.data(), basis_->size()};
}

// Logs that are damaged (not adding up to net and peak, absurd sizes) count as not recorded.
StoredSample SegmentModel::make_stored(const ShapeKey& shape, const SegmentSample& sample) const {
  StoredSample stored;
  stored.shape = shape;
  stored.net_bytes = std::clamp(sample.net_bytes, -kLargestSum, kLargestSum);
  stored.peak_bytes =
      std::clamp(std::max<std::int64_t>(sample.peak_bytes, 0), stored.net_bytes, kLargestSum);
  if (sample.deltas.size() > kMostEvents) return stored;
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (const std::int64_t delta : sample.deltas) {
    if (delta > kLargestValue || delta < -kLargestValue) return stored;
    live += delta;
    peak = std::max(peak, live);
  }
  if (live != stored.net_bytes || peak != stored.peak_bytes) return stored;
  stored.has_deltas = true;
  stored.deltas.reserve(sample.deltas.size());
  std::ranges::copy_if(sample.deltas, std::back_inserter(stored.deltas),
                       [](std::int64_t delta) { return delta != 0; });
  stored.signature = signature_of(stored.deltas);
  return stored;
}

bool SegmentModel::observe(const ShapeKey& shape, const SegmentSample& sample) {
  ++observations_;
  const bool bytes_changed = store(make_stored(shape, sample));
  const bool time_changed = time_.observe(shape, sample.seconds);
  return bytes_changed || time_changed;
}

const StoredSample* SegmentModel::find(const ShapeKey& shape) const {
  const std::size_t hash = shape.hash();
  for (std::size_t i = 0; i < hashes_.size(); ++i) {
    if (hashes_[i] == hash && samples_[i].shape == shape) return &samples_[i];
  }
  return nullptr;
}

bool SegmentModel::store(StoredSample sample) {
  const StoredSample* known = find(sample.shape);
  if (known != nullptr && (known->has_same_bytes(sample) || is_reordered(*known, sample))) {
    return false;
  }
  const bool confirmed = known == nullptr && is_predicted_exactly(sample);
  const auto capacity = static_cast<std::size_t>(options_.max_samples_per_segment);
  bool evicted = false;
  if (known != nullptr) {
    const auto index = known - samples_.data();
    samples_.erase(samples_.begin() + index);
    hashes_.erase(hashes_.begin() + index);
  } else if (samples_.size() >= capacity) {
    // A full store learns nothing from what it predicts already.
    if (confirmed && !is_extreme(sample.shape, samples_.size())) return false;
    evict_one();
    evicted = true;
  }
  sample.order = next_order_++;
  if (!confirmed && !turned_at_ && is_settled()) turned_at_ = sample.order;
  hashes_.push_back(sample.shape.hash());
  samples_.push_back(std::move(sample));
  // Nothing is made anew where one log is all there is. Polynomials are made of all samples, and
  // which log a shape is of hangs on all of them.
  if (confirmed && !evicted && !polynomials_) return false;
  refit();
  if (turned_at_) forget_before_the_turn();
  return true;
}

// Also by shapes that came since the model was made, and that it confirmed.
bool SegmentModel::is_settled() const {
  if (groups_.empty() || groups_.front().model.interpolates()) return false;
  const auto shapes = std::ranges::count_if(samples_, [this](const StoredSample& sample) {
    return sample.has_deltas && sample.signature == groups_.front().signature;
  });
  return shapes >= static_cast<std::ptrdiff_t>(kSettledShapes);
}

// Layers of one class free a block sooner or later by what stands behind them: a log that comes to
// the same as the known one is no news, and must not take it from the group that it speaks for.
bool SegmentModel::is_reordered(const StoredSample& known, const StoredSample& sample) const {
  const bool same = known.has_deltas && sample.has_deltas && known.net_bytes == sample.net_bytes &&
                    known.peak_bytes == sample.peak_bytes;
  if (!same || known.signature == sample.signature) return false;
  const auto rank = [this](const StoredSample& of) {
    return std::ranges::find(groups_, of.signature, &LogGroup::signature) - groups_.begin();
  };
  const auto none = static_cast<std::ptrdiff_t>(groups_.size());
  return rank(known) != none && rank(sample) >= rank(known);
}

// Where a settled exact model was contradicted: once the samples since then agree with one another
// exactly, the older ones belong to what the segment used to be. Unless all of them are longer, or
// shorter: lengths may rise or fall through a run.
void SegmentModel::forget_before_the_turn() {
  if (!groups_.empty() && !groups_.front().model.interpolates()) {
    turned_at_.reset();  // the contradiction fitted in after all
    return;
  }
  SegmentModel recent(key_, options_, dimensions());
  ShapeSet before;
  ShapeSet since;
  for (const StoredSample& sample : samples_) {
    const bool is_older = sample.order < *turned_at_;
    (is_older ? before : since).add(sample.shape, basis_->volume(sample.shape));
    if (is_older) continue;
    recent.samples_.push_back(sample);
    recent.hashes_.push_back(sample.shape.hash());
  }
  if (recent.samples_.size() < kRecentAgreement || since.is_of_other_lengths(before)) return;
  recent.refit();
  const bool exact = !recent.groups_.empty() && !recent.groups_.front().model.interpolates() &&
                     recent.groups_.front().shapes >= kRecentAgreement;
  if (!exact) return;
  samples_ = std::move(recent.samples_);
  hashes_ = std::move(recent.hashes_);
  turned_at_.reset();
  groups_.clear();  // nothing of what they have read stands
  refit();
}

// True if storing the sample would leave the models as they are.
bool SegmentModel::is_predicted_exactly(const StoredSample& sample) const {
  if (groups_.empty() || samples_.size() < 2) return false;
  Monomials buffer{};
  const auto monomials = evaluate(sample.shape, buffer);
  const LogChoice log = log_for(sample.shape);
  const LogGroup& group = *log.group;
  if (is_fitted(sample.shape, log)) return false;
  if (lone_like(sample.shape, group) != nullptr) return false;
  if (sample.has_deltas) {
    return group.signature == sample.signature && group.has_pattern_of(sample.shape) &&
           group.model.confirms({sample.deltas, monomials, 1});
  }
  const ExactEstimate estimate = group.model.predict(monomials, basis_->volume(sample.shape));
  return estimate.identified && estimate.net_bytes == sample.net_bytes &&
         estimate.peak_bytes == sample.peak_bytes;
}

// True if the shape is the smallest or the largest in some dimension, sample `skipped` aside.
bool SegmentModel::is_extreme(const ShapeKey& shape, std::size_t skipped) const {
  for (std::size_t d = 0; d < shape.size(); ++d) {
    bool is_smallest = true;
    bool is_largest = true;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      if (i == skipped) continue;
      is_smallest = is_smallest && shape[d] < samples_[i].shape[d];
      is_largest = is_largest && shape[d] > samples_[i].shape[d];
    }
    if (is_smallest || is_largest) return true;
  }
  return false;
}

void SegmentModel::evict_one() {
  std::size_t victim = 0;
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    if (is_extreme(samples_[i].shape, i)) continue;
    victim = i;
    break;
  }
  samples_.erase(samples_.begin() + static_cast<std::ptrdiff_t>(victim));
  hashes_.erase(hashes_.begin() + static_cast<std::ptrdiff_t>(victim));
}

void SegmentModel::refit() {
  polynomials_.reset();
  prefers_polynomials_ = false;
  beyond_.reset();
  refit_groups();
  has_lone_ = std::ranges::any_of(samples_,
                                  [this](const StoredSample& sample) { return is_alone(sample); });
  const bool one_log = !groups_.empty() && groups_.front().shapes == samples_.size();
  if (one_log || samples_.size() < 2) return;
  refit_polynomials();
  if (polynomials_->largest_residual() > static_cast<double>(tolerance_bytes())) {
    beyond_ = beyond_neighbours(samples_, *basis_);
  }
  prefers_polynomials_ = !groups_.empty() && polynomials_fit_better();
}

// Over the shapes with other logs than the preferred group's, which its model has not seen: the
// polynomials have, so that they must be better by far, and tested. Of one shape alone any would
// be.
bool SegmentModel::polynomials_fit_better() const {
  constexpr double kByFar = 8;
  if (!polynomials_->is_tested()) return false;
  const double residual = polynomials_->largest_residual();
  std::int64_t worst = 0;
  std::size_t others = 0;
  for (const StoredSample& sample : samples_) {
    if (sample.has_deltas && sample.signature == groups_.front().signature) continue;
    ++others;
    Monomials buffer{};
    const auto monomials = evaluate(sample.shape, buffer);
    const ExactEstimate estimate = first_of_pattern(groups_, sample.shape)
                                       ->model.predict(monomials, basis_->volume(sample.shape));
    worst = std::max({worst, std::abs(sample.net_bytes - estimate.net_bytes),
                      std::abs(sample.peak_bytes - estimate.peak_bytes)});
  }
  const auto tolerance = static_cast<double>(tolerance_bytes());
  return others > 1 && std::max(residual, tolerance) * kByFar < static_cast<double>(worst);
}

bool SegmentModel::is_recent(std::size_t index) const {
  return index + kRecentShapes >= samples_.size();
}

std::vector<LogGroup> SegmentModel::rank_groups() const {
  std::map<std::uint64_t, LogGroup> groups;
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    const StoredSample& sample = samples_[i];
    if (!sample.has_deltas) continue;
    LogGroup& group = groups[sample.signature];
    group.signature = sample.signature;
    group.add(sample.shape, sample.order, basis_->volume(sample.shape), is_recent(i));
  }
  std::vector<LogGroup> ranked;
  for (auto& [signature, group] : groups) {
    if (group.shapes >= 2 || samples_.size() == 1) ranked.push_back(std::move(group));
  }
  std::ranges::sort(ranked, [](const LogGroup& left, const LogGroup& right) {
    return std::tuple(left.recent, left.last_order) > std::tuple(right.recent, right.last_order);
  });
  if (ranked.size() > kMostGroups) ranked.resize(kMostGroups);
  return ranked;
}

// `before`: groups of earlier, whose models have read all that is left of their samples.
ExactModel SegmentModel::build_exact(std::uint64_t signature,
                                     const std::vector<LogGroup>& before) const {
  std::vector<const StoredSample*> members;
  for (const StoredSample& sample : samples_) {
    if (sample.has_deltas && sample.signature == signature) members.push_back(&sample);
  }
  ExactModel::Read read;
  const auto known = std::ranges::find(before, signature, &LogGroup::signature);
  if (known != before.end()) {
    read.model = &known->model;
    read.logs = static_cast<std::size_t>(std::ranges::count_if(
        members,
        [&known](const StoredSample* sample) { return sample->order <= known->last_order; }));
  }
  std::vector<Monomials> monomials(members.size());
  std::vector<EventLog> logs;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const ShapeKey& shape = members[i]->shape;
    logs.push_back({members[i]->deltas, evaluate(shape, monomials[i]), basis_->volume(shape)});
  }
  ExactModelOptions options;
  options.basis = basis_;
  options.granularity_bytes = options_.granularity_bytes;
  if (key_.kind == SegmentKind::kOptimizer) options.single_shape = SingleShapeRule::kConstant;
  return ExactModel::build(logs, options, read);
}

void SegmentModel::refit_groups() {
  const std::vector<LogGroup> before = std::exchange(groups_, rank_groups());
  for (LogGroup& group : groups_) {
    const auto known = std::ranges::find_if(
        before, [&group](const LogGroup& one) { return one.has_same_samples(group); });
    group.model = known != before.end() ? known->model : build_exact(group.signature, before);
  }
  if (!groups_.empty() && contradicts_recent(groups_.front().model)) groups_.clear();
}

// Samples without a log cannot join a group; where most recent ones contradict it, it is stale.
bool SegmentModel::contradicts_recent(const ExactModel& model) const {
  std::size_t against = 0;
  std::size_t judged = 0;
  const std::size_t first = samples_.size() - std::min(samples_.size(), kRecentShapes);
  for (std::size_t i = first; i < samples_.size(); ++i) {
    const StoredSample& sample = samples_[i];
    ++judged;
    if (sample.has_deltas) continue;
    Monomials buffer{};
    const auto monomials = evaluate(sample.shape, buffer);
    const ExactEstimate estimate = model.predict(monomials, basis_->volume(sample.shape));
    const bool agrees = sample.net_bytes <= estimate.net_upper_bytes &&
                        sample.peak_bytes <= estimate.peak_upper_bytes;
    if (!agrees) ++against;
  }
  return 2 * against > judged;
}

void SegmentModel::refit_polynomials() {
  PolynomialFit::Samples fit;
  fit.basis = basis_;
  fit.tolerance = static_cast<double>(tolerance_bytes());
  for (const StoredSample& sample : samples_) {
    Monomials buffer{};
    const auto monomials = evaluate(sample.shape, buffer);
    fit.monomials.insert(fit.monomials.end(), monomials.begin(), monomials.end());
    fit.net_bytes.push_back(sample.net_bytes);
    fit.peak_bytes.push_back(sample.peak_bytes);
  }
  polynomials_ = PolynomialFit::fit(fit);
}

bool SegmentModel::set_state(std::vector<StoredSample> samples, std::int64_t observations,
                             TimeState time) {
  if (samples.empty() || observations < static_cast<std::int64_t>(samples.size())) return false;
  if (!time_.set_state(std::move(time))) return false;
  samples_.clear();
  hashes_.clear();
  observations_ = observations;
  for (StoredSample& raw : samples) {
    SegmentSample sample;
    sample.net_bytes = raw.net_bytes;
    sample.peak_bytes = raw.peak_bytes;
    sample.deltas = std::move(raw.deltas);
    StoredSample stored = make_stored(raw.shape, sample);
    const bool as_written = stored.net_bytes == raw.net_bytes &&
                            stored.peak_bytes == raw.peak_bytes &&
                            stored.has_deltas >= raw.has_deltas;
    if (!as_written) return false;  // no step has needed that
    // An empty log that adds up would read as "nothing happens".
    if (!raw.has_deltas) stored.has_deltas = false;
    stored.order = next_order_++;
    if (find(stored.shape) != nullptr) return false;
    hashes_.push_back(stored.shape.hash());
    samples_.push_back(std::move(stored));
  }
  const auto capacity = static_cast<std::size_t>(options_.max_samples_per_segment);
  while (samples_.size() > capacity) evict_one();
  refit();
  return true;
}

}  // namespace pudica::predictor
