#include "predictor/bytes/exact_model.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace pudica::predictor {
namespace {

// Where sizes are rounded up, small blocks stay ambiguous for good: a difference this small
// beside the whole does not make a prediction doubtful.
constexpr double kNegligibleShare = 1e-3;

std::int64_t to_bytes(double value) {
  if (!(value > 0)) return 0;
  return std::llround(std::min(value, static_cast<double>(kLargestValue)));
}

}  // namespace

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

}  // namespace pudica::predictor
