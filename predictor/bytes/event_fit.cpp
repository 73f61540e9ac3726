#include "predictor/bytes/event_fit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

namespace pudica::predictor {
namespace {

constexpr std::size_t kMostForms = 16;

using Range = CoefficientRange;

std::int64_t floor_divide(std::int64_t value, std::int64_t divisor) {
  const std::int64_t quotient = value / divisor;
  return quotient - static_cast<std::int64_t>(value % divisor != 0 && value < 0);
}

void match_with_denominator(const SizeSamples& samples, std::int64_t denominator,
                            std::vector<Form>& found) {
  std::vector<Form> extremes;
  for (std::size_t m = 0; m < samples.columns; ++m) {
    Form form;
    form.monomial = static_cast<std::uint8_t>(m);
    form.denominator = denominator;
    form.granularity_bytes = samples.granularity_bytes;
    const auto range = coefficient_range(samples, form);
    if (!range) continue;
    // Every constant in the range rounds to the same size.
    const std::int64_t constant = roundest(*range);
    add_within(form, m == 0 ? Range{constant, constant} : *range, found, extremes);
  }
  found.insert(found.end(), extremes.begin(), extremes.end());
}

// The two rows that tell the terms apart best, or nullopt where no two do.
std::optional<std::pair<std::size_t, std::size_t>> most_distinct_rows(const SizeSamples& samples,
                                                                      std::size_t p,
                                                                      std::size_t q) {
  double best = 1e-9;
  std::optional<std::pair<std::size_t, std::size_t>> rows;
  for (std::size_t i = 1; i < samples.sizes.size(); ++i) {
    const auto first = samples.row(0);
    const auto other = samples.row(i);
    const double left = static_cast<double>(first[p]) * static_cast<double>(other[q]);
    const double right = static_cast<double>(other[p]) * static_cast<double>(first[q]);
    const double distinct = std::abs(left - right) / std::max(left, right);
    if (distinct > best) {
      best = distinct;
      rows = std::pair(std::size_t{0}, i);
    }
  }
  return rows;
}

// Given the second coefficient, the range of the first one.
std::optional<Range> remaining_range(const SizeSamples& samples, const Form& form) {
  Range range{-kLargestValue, kLargestValue};
  for (std::size_t i = 0; i < samples.sizes.size(); ++i) {
    const auto row = samples.row(i);
    std::int64_t second = 0;
    if (__builtin_mul_overflow(form.second_coefficient, row[form.second], &second) ||
        std::abs(second) > kLargestValue) {
      return std::nullopt;
    }
    const std::int64_t rest = samples.sizes[i] - second;
    const std::int64_t value = row[form.monomial];
    range.high = std::min(range.high, floor_divide(rest, value));
    range.low = std::max(range.low, floor_divide(rest - samples.granularity_bytes, value) + 1);
    if (range.low > range.high) return std::nullopt;
  }
  return range;
}

}  // namespace

std::optional<Form> match_pair(const SizeSamples& samples, std::size_t p, std::size_t q) {
  const auto rows = most_distinct_rows(samples, p, q);
  if (!rows) return std::nullopt;
  const auto first = samples.row(rows->first);
  const auto other = samples.row(rows->second);
  const double middle = 0.5 * static_cast<double>(samples.granularity_bytes - 1);
  const double size1 = static_cast<double>(samples.sizes[rows->first]) - middle;
  const double size2 = static_cast<double>(samples.sizes[rows->second]) - middle;
  const double ratio = static_cast<double>(other[p]) / static_cast<double>(first[p]);
  const double solved = (size2 - size1 * ratio) /
                        (static_cast<double>(other[q]) - static_cast<double>(first[q]) * ratio);
  if (!(solved > 0.5) || solved > static_cast<double>(kLargestValue)) return std::nullopt;
  Form form;
  form.monomial = static_cast<std::uint8_t>(p);
  form.second = static_cast<std::uint8_t>(q);
  form.granularity_bytes = samples.granularity_bytes;
  // Rounding hides the exact coefficient: the roundest one that agrees is taken.
  for (std::int64_t unit = samples.granularity_bytes == 1 ? 1 : 4096; unit >= 1; unit /= 2) {
    const auto multiple = std::llround(solved / static_cast<double>(unit));
    form.second_coefficient = static_cast<std::int64_t>(multiple) * unit;
    if (form.second_coefficient < 1) continue;
    const auto range = remaining_range(samples, form);
    if (!range) continue;
    form.coefficient = roundest(*range);
    if (form.coefficient != 0 && reproduces(form, samples)) return form;
  }
  return std::nullopt;
}

std::int64_t roundest(Range range) {
  for (int bits = 40; bits > 0; --bits) {
    const std::int64_t unit = std::int64_t{1} << bits;
    const std::int64_t candidate = floor_divide(range.high, unit) * unit;
    if (candidate >= range.low && candidate != 0) return candidate;
  }
  return range.high;
}

void add_within(Form form, Range range, std::vector<Form>& points, std::vector<Form>& extremes) {
  form.coefficient = roundest(range);
  points.push_back(form);
  for (const std::int64_t end : {range.high, range.low}) {
    if (end == points.back().coefficient) continue;
    form.coefficient = end;
    extremes.push_back(form);
  }
}

bool reproduces(const Form& form, const SizeSamples& samples) {
  for (std::size_t i = 0; i < samples.sizes.size(); ++i) {
    if (form.evaluate(samples.row(i)) != samples.sizes[i]) return false;
  }
  return true;
}

std::optional<Range> coefficient_range(const SizeSamples& samples, const Form& form) {
  Range range{1, kLargestValue};
  const std::int64_t denominator = form.denominator;
  const std::int64_t unit = denominator * samples.granularity_bytes;
  for (std::size_t i = 0; i < samples.sizes.size(); ++i) {
    const std::int64_t size = samples.sizes[i] * denominator;
    const std::int64_t value = form.first_term(samples.row(i));
    range.high = std::min(range.high, size / value);
    range.low = std::max(range.low, floor_divide(size - unit, value) + 1);
    if (range.low > range.high) return std::nullopt;
  }
  return range;
}

SizeSamples with_true_granularity(SizeSamples samples) {
  for (const std::int64_t size : samples.sizes) {
    if (size % samples.granularity_bytes != 0) samples.granularity_bytes = 1;
  }
  return samples;
}

std::int64_t Form::evaluate(std::span<const std::int64_t> monomials) const {
  std::int64_t value = 0;
  if (__builtin_mul_overflow(coefficient, first_term(monomials), &value)) {
    value = std::numeric_limits<std::int64_t>::max();
  }
  if (second != kNoTerm) {
    std::int64_t term = counted(monomials, second, count.second_power);
    if (__builtin_mul_overflow(second_coefficient, term, &term) ||
        __builtin_add_overflow(value, term, &value)) {
      value = std::numeric_limits<std::int64_t>::max();
    }
  }
  value = std::clamp<std::int64_t>(value, 0, most(monomials));
  const std::int64_t unit = denominator * granularity_bytes;
  if (value > kLargestValue * denominator - unit) return kLargestValue;
  if (unit == 1) return value;
  const std::int64_t rounded = (value + unit - 1) / unit * unit / denominator;
  if (!ties_to_even || value % unit != granularity_bytes) return rounded;
  const bool is_odd = (rounded / granularity_bytes) % 2 != 0;
  return is_odd ? rounded - granularity_bytes : rounded;
}

std::int64_t Form::most(std::span<const std::int64_t> monomials) const {
  std::int64_t most = 0;
  if (!is_capped()) return std::numeric_limits<std::int64_t>::max();
  if (__builtin_mul_overflow(most_bytes, monomials[most_of], &most)) return kLargestValue;
  return std::min(most, kLargestValue);
}

std::int64_t Form::first_term(std::span<const std::int64_t> monomials) const {
  const std::int64_t plain = monomials[monomial];
  if (tiled == kNoTerm) return counted(monomials, monomial, count.first_power);
  const std::int64_t factor = monomials[tiled];
  const std::int64_t tiles = (factor + tile - 1) / tile;
  std::int64_t value = 0;
  if (__builtin_mul_overflow(plain / factor, tiles * tile, &value)) return kLargestValue;
  return std::min(value, kLargestValue);
}

std::int64_t Form::counted(std::span<const std::int64_t> monomials, std::uint8_t which,
                           std::uint8_t power) const {
  std::int64_t value = monomials[which];
  if (count.dimension == Count::kNone) return value;
  const std::int64_t size = monomials[count.dimension];
  const std::int64_t tiles = std::max<std::int64_t>((size + tile - 1) / tile + count.more, 0);
  for (std::uint8_t i = 0; i < power; ++i) value = value / size * tiles;
  return std::min(value, kLargestValue);
}

std::vector<Form> match_one_term(const SizeSamples& raw) {
  SizeSamples samples = with_true_granularity(raw);
  std::vector<Form> found;
  match_with_denominator(samples, 1, found);
  if (!found.empty()) return found;
  match_with_denominator(samples, 8, found);
  if (!found.empty() || samples.granularity_bytes >= 8) return found;
  // Bits packed into whole words.
  samples.granularity_bytes = 8;
  for (const std::int64_t size : samples.sizes) {
    if (size % 8 != 0) return found;
  }
  match_with_denominator(samples, 8, found);
  return found;
}

std::vector<Form> match_two_terms(const SizeSamples& raw) {
  const SizeSamples samples = with_true_granularity(raw);
  std::vector<Form> found;
  const std::size_t first_terms = samples.sizes.size() >= 3 ? samples.columns : 1;
  for (std::size_t p = 0; p < first_terms; ++p) {
    for (std::size_t q = p + 1; q < samples.columns && found.size() < kMostForms; ++q) {
      const auto form = match_pair(samples, p, q);
      if (form) found.push_back(*form);
    }
  }
  std::stable_partition(found.begin(), found.end(),
                        [](const Form& form) { return form.coefficient > 0; });
  return found;
}

}  // namespace pudica::predictor
