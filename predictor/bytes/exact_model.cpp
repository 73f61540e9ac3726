#include "predictor/bytes/exact_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "predictor/bytes/tiled_fit.h"

namespace pudica::predictor {
namespace {

// Where sizes are rounded up, small blocks stay ambiguous for good: a difference this small
// beside the whole does not make a prediction doubtful.
constexpr double kNegligibleShare = 1e-3;
// And blocks of unlike forms can share their rounded sizes at all shapes seen; taking one for the
// other is wrong by a few granules.
constexpr std::int64_t kRoundingSlackGranules = 8;
constexpr std::size_t kEnoughRounded = 5;  // distinct sizes
// A search that is given up: of a model with many sizes that follow no form, or many dimensions.
constexpr std::size_t kMostVainSplits = 16;
constexpr std::size_t kMostColumnsToSplit = 12;  // three dimensions

std::int64_t to_bytes(double value) {
  if (!(value > 0)) return 0;
  return std::llround(std::min(value, static_cast<double>(kLargestValue)));
}

struct SizesHash {
  std::size_t operator()(const std::vector<std::int64_t>& sizes) const {
    std::uint64_t state = 0x9e3779b97f4a7c15ULL;
    for (const std::int64_t size : sizes) {
      state = (state ^ static_cast<std::uint64_t>(size)) * 0xff51afd7ed558ccdULL;
      state ^= state >> 32U;
    }
    return static_cast<std::size_t>(state);
  }
};

// One log: the first volume that divides the size comes before everything else.
void prefer_volume(std::vector<Form>& forms, const MonomialBasis& basis) {
  const auto linear = std::ranges::find_if(forms, [&](const Form& form) {
    return form.monomial >= 1 && form.monomial <= basis.linear_count() && form.denominator == 1;
  });
  if (linear != forms.end()) std::rotate(forms.begin(), linear, linear + 1);
}

// Frees with nothing allocated between them, the largest first. False: they were.
bool order_frees(std::vector<std::int64_t>& deltas) {
  bool changed = false;
  for (auto begin = deltas.begin(); begin != deltas.end();) {
    const bool frees = *begin < 0;
    const auto end = std::find_if(begin, deltas.end(),
                                  [frees](std::int64_t delta) { return (delta < 0) != frees; });
    if (frees && !std::is_sorted(begin, end)) {
      std::sort(begin, end);
      changed = true;
    }
    begin = end;
  }
  return changed;
}

}  // namespace

// What neither a product nor a sum of two explains.
void ExactModel::read_odd_size(const SizeSamples& samples, Reading& reading, EventSize& size) {
  const MonomialBasis& basis = *reading.options.basis;
  if (!reading.counted) reading.counted.emplace(samples, basis);
  size.forms = reading.counted->match(samples);
  if (!size.forms.empty()) {
    // Rounded sizes are fitted by chance, of so many counts.
    const std::size_t distinct = std::set(samples.sizes.begin(), samples.sizes.end()).size();
    size.is_weak = samples.granularity_bytes > 1 && distinct < kEnoughRounded;
    return;
  }
  TiledForms capped = match_capped(samples, basis.tilings(), basis.batch());
  size.forms = std::move(capped.forms);
  size.is_weak = !size.forms.empty() && capped.evidence < TiledForms::kEnough;
  size.is_at_rest = capped.at_rest >= TiledForms::kEnough;
  if (!size.forms.empty() || reading.vain_splits > kMostVainSplits) return;
  if (samples.columns <= kMostColumnsToSplit) size.split = SplitForms::match(samples, basis);
  if (!size.split) ++reading.vain_splits;
}

ExactModel::EventSize ExactModel::read_size(const SizeSamples& samples,
                                            std::span<const EventLog> logs, Reading& reading) {
  const ExactModelOptions& options = reading.options;
  EventSize size;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    if (samples.sizes[i] <= size.largest_bytes) continue;
    size.largest_bytes = samples.sizes[i];
    size.volume_of_largest = logs[i].volume;
  }
  size.forms = match_one_term(samples);
  if (logs.size() == 1) {
    if (options.single_shape == SingleShapeRule::kConstant) size.forms.resize(1);
    if (options.single_shape == SingleShapeRule::kProportional) {
      prefer_volume(size.forms, *options.basis);
    }
    return size;
  }
  if (size.forms.empty()) {
    TiledForms tiled = match_tiled(samples, options.basis->tilings());
    const std::vector<Form> two_terms = match_two_terms(samples);
    size.is_weak = tiled.forms.empty() ? !two_terms.empty() && logs.size() == 2
                                       : tiled.evidence < TiledForms::kEnough;
    size.forms = std::move(tiled.forms);
    size.forms.insert(size.forms.end(), two_terms.begin(), two_terms.end());
    if (size.forms.empty()) read_odd_size(samples, reading, size);
  }
  for (std::size_t i = 0; size.is_weak && i < logs.size(); ++i) {
    const bool ends = size.is_at_rest && samples.sizes[i] == size.largest_bytes;
    size.seen.emplace_back(samples.sizes[i],
                           ends ? std::numeric_limits<double>::infinity() : logs[i].volume);
  }
  if (size.forms.empty() && !size.split) {
    size.fit = LinearFit::fit({.monomials = samples.monomials,
                               .columns = samples.columns,
                               .values = samples.sizes,
                               .tolerance = static_cast<double>(options.granularity_bytes),
                               .wants_rivals = true});
  }
  return size;
}

ExactModel ExactModel::build(std::span<const EventLog> logs, const ExactModelOptions& options) {
  ExactModel model = read_events(logs, options);
  if (logs.size() < 2 || model.unexplained_ == 0) return model;
  std::vector<std::vector<std::int64_t>> ordered;
  bool changed = false;
  for (const EventLog& log : logs) {
    ordered.emplace_back(log.deltas.begin(), log.deltas.end());
    changed = order_frees(ordered.back()) || changed;
  }
  if (!changed) return model;
  std::vector<EventLog> others(logs.begin(), logs.end());
  for (std::size_t i = 0; i < others.size(); ++i) others[i].deltas = ordered[i];
  ExactModel other = read_events(others, options);
  other.frees_are_ordered_ = true;
  return other.unexplained_ < model.unexplained_ ? other : model;
}

ExactModel ExactModel::read_events(std::span<const EventLog> logs,
                                   const ExactModelOptions& options) {
  ExactModel model;
  model.columns_ = options.basis->size();
  if (options.granularity_bytes > 1) {
    model.rounding_slack_bytes_ = kRoundingSlackGranules * options.granularity_bytes;
  }
  std::vector<std::int64_t> monomials;
  for (const EventLog& log : logs) {
    monomials.insert(monomials.end(), log.monomials.begin(), log.monomials.end());
  }
  SizeSamples samples{.monomials = monomials,
                      .columns = model.columns_,
                      .sizes = {},
                      .granularity_bytes = options.granularity_bytes};
  Reading reading{.options = options, .counted = std::nullopt};
  std::unordered_map<std::vector<std::int64_t>, std::uint32_t, SizesHash> known;
  std::vector<std::int64_t> sizes(logs.size());
  const std::size_t events = logs.front().deltas.size();
  model.program_.reserve(events);
  for (std::size_t event = 0; event < events; ++event) {
    for (std::size_t i = 0; i < logs.size(); ++i) sizes[i] = std::abs(logs[i].deltas[event]);
    const auto next = static_cast<std::uint32_t>(model.sizes_.size());
    const auto [entry, is_new] = known.try_emplace(sizes, next);
    if (is_new) {
      samples.sizes = sizes;
      model.sizes_.push_back(read_size(samples, logs, reading));
      const EventSize& size = model.sizes_.back();
      const bool is_one = size.forms.size() == 1 && !size.forms.front().is_rounded_sum();
      if (!is_one || size.is_weak) model.doubtful_.push_back(next);
      model.interpolates_ = model.interpolates_ || size.fit.has_value();
      if (size.fit || size.is_weak) ++model.unexplained_;
    }
    model.add_event(entry->second, logs.front().deltas[event]);
  }
  model.own_blocks_ = {};
  model.scratch_.resize(model.sizes_.size() * kRoles);
  return model;
}

void ExactModel::add_event(std::uint32_t size, std::int64_t sign) {
  own_blocks_.resize(sizes_.size());
  Role role = Role::kAllocate;
  if (sign > 0) {
    ++own_blocks_[size];
  } else if (own_blocks_[size] > 0) {
    --own_blocks_[size];
    role = Role::kFreeOwn;
  } else {
    role = Role::kFreeOlder;
  }
  program_.push_back(size * kRoles + static_cast<std::uint32_t>(role));
}

std::int64_t ExactModel::point(const EventSize& size, std::span<const std::int64_t> monomials) {
  if (!size.forms.empty()) return size.forms.front().evaluate(monomials);
  if (size.split) return size.split->range(monomials).point;
  return to_bytes(size.fit->value(monomials));
}

ExactModel::SizeRange ExactModel::range(const EventSize& size,
                                        std::span<const std::int64_t> monomials, double volume) {
  SizeRange range{kLargestValue, 0};
  const double growth = std::max(1.0, volume / size.volume_of_largest);
  for (const Form& form : size.forms) {
    const std::int64_t bytes = form.evaluate(monomials);
    const double granules = form.is_rounded_sum() ? std::ceil(growth) : 0;
    const auto open = to_bytes(granules * static_cast<double>(form.granularity_bytes));
    range.low = std::min(range.low, std::max<std::int64_t>(bytes - open, 0));
    range.high = std::max(range.high, std::min(bytes + open, kLargestValue));
  }
  bool is_beyond = false;
  if (size.split) {
    const SplitForms::Range of_split = size.split->range(monomials);
    range = {of_split.low, of_split.high};
    is_beyond = of_split.is_beyond;
  }
  if (size.fit) {
    const double slack = size.fit->slack(monomials);
    range.low = size.fit->is_tested() ? to_bytes(size.fit->value(monomials) - slack) : 0;
    range.high = to_bytes(size.fit->value(monomials) + slack);
  }
  // Nor is a fit that says that nothing is there, of what always was.
  const bool untested = size.fit && (!size.fit->is_tested() || range.low <= 0);
  const bool was_seen = std::ranges::any_of(size.seen, [&](const auto& seen) {
    return range.low == seen.first && range.high == seen.first && volume <= seen.second;
  });
  range.is_weak = is_beyond || (size.is_weak && !was_seen) || (untested && range.high <= 0);
  if (untested || range.is_weak) {
    const auto scaled = to_bytes(static_cast<double>(size.largest_bytes) * growth);
    const double other = untested ? size.fit->highest(monomials).value_or(0) : 0;
    range.high = std::max({range.high, scaled, to_bytes(other)});
  }
  return range;
}

void ExactModel::set_size(std::uint32_t size, const SizeRange& range) const {
  std::int64_t* roles = &scratch_[static_cast<std::size_t>(size) * kRoles];
  roles[static_cast<std::size_t>(Role::kAllocate)] = range.high;
  // A block of the segment's own is freed with the size it was allocated with. (Where an older
  // block is freed while an own block of that size lives, the two are taken for each other.)
  roles[static_cast<std::size_t>(Role::kFreeOwn)] = -range.high;
  roles[static_cast<std::size_t>(Role::kFreeOlder)] = -range.low;
}

std::pair<std::int64_t, std::int64_t> ExactModel::run_program() const {
  std::int64_t live = 0;
  std::int64_t peak = 0;
  const std::int64_t* values = scratch_.data();
  for (const std::uint32_t code : program_) {
    live += values[code];
    peak = std::max(peak, live);
  }
  return {live, peak};
}

ExactEstimate ExactModel::predict(std::span<const std::int64_t> monomials, double volume) const {
  for (std::uint32_t i = 0; i < sizes_.size(); ++i) {
    const std::int64_t bytes = point(sizes_[i], monomials);
    set_size(i, {bytes, bytes});
  }
  ExactEstimate estimate;
  std::tie(estimate.net_bytes, estimate.peak_bytes) = run_program();
  estimate.net_upper_bytes = estimate.net_bytes;
  estimate.peak_upper_bytes = estimate.peak_bytes;
  estimate.identified = true;
  bool differs = false;
  std::int64_t weakest = 0;  // the largest size that is not tested, whatever its range is
  for (const std::uint32_t i : doubtful_) {
    const SizeRange sizes = range(sizes_[i], monomials, volume);
    differs = differs || sizes.low != sizes.high;
    if (sizes.is_weak) weakest = std::max(weakest, sizes.high);
    set_size(i, sizes);
  }
  const auto is_negligible = [&estimate](std::int64_t bytes) {
    return static_cast<double>(bytes) <=
           kNegligibleShare * static_cast<double>(estimate.peak_bytes);
  };
  if (!differs) {
    estimate.identified = is_negligible(weakest);
    return estimate;
  }
  const auto [net, peak] = run_program();
  const std::int64_t slack = rounding_slack_bytes_;
  estimate.net_upper_bytes = std::max(net, estimate.net_bytes) + slack;
  estimate.peak_upper_bytes = std::max(peak, estimate.peak_bytes) + slack;
  estimate.identified = false;
  if (slack > 0 || interpolates_) {
    for (const std::uint32_t i : doubtful_) {
      const SizeRange sizes = range(sizes_[i], monomials, volume);
      set_size(i, {sizes.high, sizes.low});
    }
    const auto [net_lower, peak_lower] = run_program();
    const std::int64_t doubt = std::max(net - net_lower, peak - peak_lower);
    estimate.identified = is_negligible(doubt) && is_negligible(weakest);
  }
  return estimate;
}

bool ExactModel::confirms(const EventLog& log) const {
  if (!doubtful_.empty() || log.deltas.size() != program_.size()) return false;
  for (std::uint32_t i = 0; i < sizes_.size(); ++i) {
    const std::int64_t bytes = point(sizes_[i], log.monomials);
    set_size(i, {bytes, bytes});
  }
  std::vector<std::int64_t> ordered;
  std::span<const std::int64_t> deltas = log.deltas;
  if (frees_are_ordered_) {
    ordered.assign(deltas.begin(), deltas.end());
    order_frees(ordered);
    deltas = ordered;
  }
  for (std::size_t i = 0; i < program_.size(); ++i) {
    if (scratch_[program_[i]] != deltas[i]) return false;
  }
  return true;
}

}  // namespace pudica::predictor
