#include "predictor/bytes/polynomial_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include "predictor/bytes/tiled_fit.h"

namespace pudica::predictor {
namespace {

constexpr double kFarMore = 8;  // times less is left unexplained
constexpr double kNearlyAsGood = 2;
constexpr std::size_t kCounts = 3;   // that differ: fewer say little of tiles
constexpr std::size_t kToSpare = 6;  // shapes more than terms: there are many counts to choose from
constexpr std::size_t kMostColumns = 12;  // three dimensions: each count is another fit

bool counts_differ(const PolynomialFit::Samples& samples, const Form& counting) {
  std::set<std::int64_t> counts;
  const std::size_t columns = samples.basis->size();
  for (std::size_t i = 0; i < samples.net_bytes.size(); ++i) {
    counts.insert(counting.first_term(std::span(samples.monomials).subspan(i * columns, columns)));
  }
  return counts.size() >= kCounts;
}

}  // namespace

// The monomials that have the length among their factors.
void PolynomialFit::Quantity::set_counting(const MonomialBasis& basis, const Form& counting) {
  basis_ = &basis;
  if (counting.count.dimension == Count::kNone) return;
  for (std::size_t m = 0; m < basis.size(); ++m) {
    Form form = counting;
    form.monomial = static_cast<std::uint8_t>(m);
    form.count.first_power = basis.power(m, counting.count.dimension);
    if (form.count.first_power > 0) counted_.push_back(form);
  }
}

std::vector<std::int64_t> PolynomialFit::Quantity::columns(
    std::span<const std::int64_t> monomials) const {
  std::vector<std::int64_t> values(monomials.begin(), monomials.end());
  for (const Form& form : counted_) values.push_back(form.first_term(monomials));
  return values;
}

void PolynomialFit::Quantity::fit_to(const Samples& samples, std::span<const std::int64_t> bytes) {
  const std::size_t width = basis_->size();
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto row = columns(std::span(samples.monomials).subspan(i * width, width));
    rows.insert(rows.end(), row.begin(), row.end());
  }
  FitSamples fit;
  fit.monomials = rows;
  fit.columns = rows.size() / bytes.size();
  fit.values = bytes;
  fit.tolerance = samples.tolerance;
  fit.wants_rivals = counted_.empty();
  fit_ = LinearFit::fit(fit);
}

double PolynomialFit::Quantity::value(std::span<const std::int64_t> monomials) const {
  return counted_.empty() ? fit_.value(monomials) : fit_.value(columns(monomials));
}

double PolynomialFit::Quantity::slack(std::span<const std::int64_t> monomials) const {
  return counted_.empty() ? fit_.slack(monomials) : fit_.slack(columns(monomials));
}

std::optional<double> PolynomialFit::Quantity::highest(
    std::span<const std::int64_t> monomials) const {
  if (counted_.empty()) return fit_.highest(monomials);
  double most = value(monomials) + slack(monomials);
  for (const Quantity& rival : rivals_) {
    most = std::max(most, rival.value(monomials) + rival.slack(monomials));
  }
  return most;
}

PolynomialRows PolynomialFit::Quantity::rows() const {
  std::vector<double> sums(basis_->size());
  const std::vector<double> coefficients = fit_.coefficients();
  for (std::size_t i = 0; i < coefficients.size(); ++i) {
    const std::size_t column = fit_.terms()[i];
    if (column < sums.size()) {
      sums[column] += coefficients[i];
    } else {
      const Form& form = counted_[column - sums.size()];
      const auto elements = std::pow(static_cast<double>(form.tile), form.count.first_power);
      sums[form.monomial] += coefficients[i] / elements;
    }
  }
  PolynomialRows rows;
  rows.coefficients.emplace_back();
  for (std::size_t m = 0; m < sums.size(); ++m) {
    if (sums[m] == 0) continue;
    rows.monomials.push_back(static_cast<std::uint8_t>(m));
    rows.coefficients.front().push_back(sums[m]);
  }
  return rows;
}

double PolynomialFit::largest_residual() const {
  return std::max(net_.fit_.largest_residual(), peak_.fit_.largest_residual());
}

PolynomialFit PolynomialFit::of(const Samples& samples, const Form& counting) {
  PolynomialFit fit;
  for (Quantity* quantity : {&fit.net_, &fit.peak_}) {
    quantity->set_counting(*samples.basis, counting);
  }
  fit.net_.fit_to(samples, samples.net_bytes);
  fit.peak_.fit_to(samples, samples.peak_bytes);
  return fit;
}

// With a length counted, those that leave no more unexplained than that.
std::vector<PolynomialFit> PolynomialFit::counted(const Samples& samples, double most_residual) {
  std::vector<PolynomialFit> found;
  for (const std::uint8_t length : samples.basis->lengths()) {
    for (std::int64_t tile = kLeastTile; tile <= kMostTile; tile *= 2) {
      Form counting;
      counting.monomial = length;
      counting.tile = tile;
      counting.count = {.dimension = length, .first_power = 1};
      if (!counts_differ(samples, counting)) continue;
      PolynomialFit other = of(samples, counting);
      const std::size_t terms =
          std::max(other.net_.fit_.terms().size(), other.peak_.fit_.terms().size());
      const bool is_tested = samples.net_bytes.size() >= terms + kToSpare;
      if (is_tested && other.largest_residual() <= most_residual) found.push_back(std::move(other));
    }
  }
  return found;
}

PolynomialFit PolynomialFit::fit(const Samples& samples) {
  PolynomialFit plain = of(samples, {});
  const double left = plain.largest_residual();
  if (left <= samples.tolerance || samples.basis->size() > kMostColumns) return plain;
  std::vector<PolynomialFit> found = counted(samples, std::max(left / kFarMore, samples.tolerance));
  if (found.empty()) return plain;
  const auto best = std::ranges::min_element(found, {}, &PolynomialFit::largest_residual);
  PolynomialFit fit = *best;
  const double bound = std::max(kNearlyAsGood * fit.largest_residual(), samples.tolerance);
  for (auto other = found.begin(); other != found.end(); ++other) {
    if (other == best || other->largest_residual() > bound) continue;
    fit.net_.rivals_.push_back(other->net_);
    fit.peak_.rivals_.push_back(other->peak_);
  }
  return fit;
}

}  // namespace pudica::predictor
