#include "predictor/bytes/share_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>

namespace pudica::predictor {
namespace {

constexpr std::size_t kLeastDistinct = 5;
constexpr std::size_t kMostOfMonomial = 5;
// Of fractions of a monomial that give every size, one whose denominator is so many times as small
// is meant.
constexpr std::int64_t kFarSimpler = 4;
constexpr std::int64_t kMostUnits = 4;  // counts may all be multiples of it
constexpr std::int64_t kLargestDenominator = std::int64_t{1} << 15U;  // products of it fit
constexpr double kAbout = 1e-12;  // where numbers are equal but for their last bits
// Fractions with such a denominator or a smaller one lie in so wide an interval by chance.
constexpr double kByChance = 0.1;

// count = floor(share * m + offset): of whole halves, and whether those at the limit count.
struct Rounding {
  std::int64_t half_offsets = 0;
  bool takes_limit = true;
  bool ties_to_even = false;  // they do where the count is even, as in Python's round()
};
constexpr std::array<Rounding, 5> kRoundings{Rounding{1, true, true}, Rounding{1, true},
                                             Rounding{1, false}, Rounding{0, true},
                                             Rounding{2, false}};

struct Interval {
  double low = 0;
  double high = 1e18;
};

struct Fraction {
  std::int64_t numerator = 0;
  std::int64_t denominator = 1;
};

// The fraction of the smallest denominator in an interval of positive numbers, by continued
// fractions (Graham, Knuth and Patashnik, "Concrete Mathematics", 4.5).
std::optional<Fraction> simplest_within(double low, double high, int depth = 0) {
  constexpr int kDeepest = 24;
  if (!(low > 0) || !(high >= low) || high > 1e12 || depth > kDeepest) return std::nullopt;
  const double whole = std::ceil(low);
  if (whole <= high) return Fraction{std::llround(whole), 1};
  const double below = std::floor(low);
  const auto rest = simplest_within(1 / (high - below), 1 / (low - below), depth + 1);
  if (!rest || rest->numerator > kLargestDenominator) return std::nullopt;
  return Fraction{std::llround(below) * rest->numerator + rest->denominator, rest->numerator};
}

// The shares of monomial m that give each size its count of units.
std::optional<Interval> interval_of(const SizeSamples& samples, std::size_t m, std::int64_t unit,
                                    const Rounding& rounding) {
  Interval open;
  for (std::size_t i = 0; i < samples.sizes.size(); ++i) {
    const auto count = static_cast<double>(samples.sizes[i] / unit);
    const double offset = 0.5 * static_cast<double>(rounding.half_offsets);
    const auto value = static_cast<double>(samples.row(i)[m]);
    open.low = std::max(open.low, (count - offset) / value);
    open.high = std::min(open.high, (count + 1 - offset) / value);
    if (open.low > open.high) return std::nullopt;
  }
  return open;
}

// Of its two limits one belongs to it, or either may.
Interval inside_of(const Interval& open, const Rounding& rounding) {
  constexpr double kInside = 1e-3;
  if (rounding.ties_to_even) return {open.low * (1 - kAbout), open.high * (1 + kAbout)};
  const double inside = kInside * (open.high - open.low);
  if (rounding.takes_limit) return {open.low * (1 - kAbout), open.high - inside};
  return {open.low + inside, open.high * (1 + kAbout)};
}

// As Form has it, which rounds up: floor(x + h / 2) of x = p m / q is that of 2 p m + h q, over
// 2 q, and one less than 2 q less of it, rounded up.
Form form_of(const Fraction& share, std::size_t m, std::int64_t unit, const Rounding& rounding) {
  const std::int64_t parts = 2 * share.denominator;
  const std::int64_t rest = rounding.takes_limit ? parts - 1 : parts;
  Form form;
  form.monomial = static_cast<std::uint8_t>(m);
  form.second = 0;  // the monomial 1
  form.coefficient = 2 * share.numerator * unit;
  form.second_coefficient = (rounding.half_offsets * share.denominator - rest) * unit;
  form.denominator = parts;
  form.granularity_bytes = unit;
  form.ties_to_even = rounding.ties_to_even;
  return form;
}

// What gives every size, of one monomial.
class Matcher {
 public:
  Matcher(const SizeSamples& samples, std::size_t monomial)
      : samples_(samples), monomial_(monomial) {}

  void match(std::int64_t unit, const Rounding& rounding) {
    const auto open = interval_of(samples_, monomial_, unit, rounding);
    if (!open) return;
    const double width = open->high - open->low;
    const Interval inside = inside_of(*open, rounding);
    const auto share = simplest_within(inside.low, inside.high);
    if (!share) return;
    Reading reading{*share, form_of(*share, monomial_, unit, rounding), {}};
    if (!reproduces(reading.form, samples_)) return;
    const auto denominator = static_cast<double>(share->denominator);
    const bool is_meant = denominator * denominator * width <= kByChance;
    if (!is_meant && !add_ends(inside, unit, rounding, reading)) return;
    readings_.push_back(std::move(reading));
  }

  // Some fraction is so simple that it is none by chance.
  [[nodiscard]] bool is_sure() const {
    return std::ranges::any_of(readings_, [](const Reading& of) { return of.extremes.empty(); });
  }

  // The simplest first, and its rivals.
  void add_to(std::vector<Form>& points, std::vector<Form>& extremes) {
    std::ranges::stable_sort(readings_, {}, [](const Reading& of) { return of.share.denominator; });
    std::size_t taken = 0;
    for (const Reading& reading : readings_) {
      const std::int64_t simplest = readings_.front().share.denominator;
      const bool is_far = reading.share.denominator > kFarSimpler * simplest;
      if (is_far || taken++ >= kMostOfMonomial) return;
      points.push_back(reading.form);
      extremes.insert(extremes.end(), reading.extremes.begin(), reading.extremes.end());
    }
  }

 private:
  struct Reading {
    Fraction share;
    Form form;
    std::vector<Form> extremes;
  };

  // False: it has an end that no fraction tells.
  bool add_ends(const Interval& inside, std::int64_t unit, const Rounding& rounding,
                Reading& reading) const {
    constexpr double kOutermost = 0.05;
    const double edge = kOutermost * (inside.high - inside.low);
    for (const Interval& end :
         {Interval{inside.low, inside.low + edge}, Interval{inside.high - edge, inside.high}}) {
      const auto share = simplest_within(end.low, end.high);
      if (!share) return false;
      const Form form = form_of(*share, monomial_, unit, rounding);
      if (!reproduces(form, samples_)) return false;
      reading.extremes.push_back(form);
    }
    return true;
  }

  const SizeSamples& samples_;
  std::size_t monomial_;
  std::vector<Reading> readings_;
};

}  // namespace

std::vector<Form> match_shares(const SizeSamples& raw) {
  const SizeSamples samples = with_true_granularity(raw);
  std::vector<Form> found;
  const std::size_t distinct = std::set(samples.sizes.begin(), samples.sizes.end()).size();
  if (samples.granularity_bytes > 1 || distinct < kLeastDistinct) return found;
  std::int64_t common = 0;
  for (const std::int64_t size : samples.sizes) common = std::gcd(common, size);
  std::vector<Form> extremes;
  for (std::size_t m = 1; m < samples.columns; ++m) {
    Matcher matcher(samples, m);
    for (std::int64_t parts = 1; parts <= kMostUnits && !matcher.is_sure(); ++parts) {
      if (common % parts != 0) continue;
      for (const Rounding& rounding : kRoundings) matcher.match(common / parts, rounding);
    }
    matcher.add_to(found, extremes);
  }
  found.insert(found.end(), extremes.begin(), extremes.end());
  return found;
}

}  // namespace pudica::predictor
