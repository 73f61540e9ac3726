// The exact model in words and numbers: sums of its sizes, by monomial.
#include <algorithm>
#include <cmath>
#include <set>

#include "predictor/bytes/exact_model.h"

namespace pudica::predictor {
namespace {

// Keeps only the monomials that some row needs.
PolynomialRows compress(const std::vector<std::vector<double>>& rows, std::size_t columns) {
  PolynomialRows compressed;
  compressed.coefficients.resize(rows.size());
  for (std::size_t m = 0; m < columns; ++m) {
    if (std::ranges::none_of(rows, [&](const auto& row) { return row[m] != 0; })) continue;
    compressed.monomials.push_back(static_cast<std::uint8_t>(m));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      compressed.coefficients[i].push_back(rows[i][m]);
    }
  }
  return compressed;
}

}  // namespace

std::vector<double> ExactModel::polynomial(const EventSize& size) const {
  std::vector<double> sum(columns_);
  if (!size.fit) {
    const Form& form = size.split ? size.split->last() : size.forms.front();
    const auto unit = [&form](std::uint8_t counted) {  // a tile counts as its elements
      return static_cast<double>(form.denominator) *
             std::pow(static_cast<double>(form.tile), static_cast<double>(counted));
    };
    sum[form.monomial] = static_cast<double>(form.coefficient) / unit(form.count.first_power);
    if (form.second != Form::kNoTerm) {
      sum[form.second] =
          static_cast<double>(form.second_coefficient) / unit(form.count.second_power);
    }
    return sum;
  }
  const std::vector<double> coefficients = size.fit->coefficients();
  for (std::size_t i = 0; i < coefficients.size(); ++i) {
    sum[size.fit->terms()[i]] = coefficients[i];
  }
  return sum;
}

void ExactModel::add_polynomial(std::uint32_t code, std::vector<double>& sum) const {
  const double sign = code % kRoles == static_cast<std::uint32_t>(Role::kAllocate) ? 1 : -1;
  const std::vector<double> terms = polynomial(sizes_[code / kRoles]);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += sign * terms[i];
}

PolynomialRows ExactModel::describe_net() const {
  std::vector<double> sum(columns_);
  for (const std::uint32_t code : program_) add_polynomial(code, sum);
  return compress({sum}, columns_);
}

PolynomialRows ExactModel::describe_peak(
    std::span<const std::vector<std::int64_t>> monomials_of_shapes, std::size_t most) const {
  // Where the peak is reached at each shape; prefix 0 is the start of the segment.
  std::set<std::size_t> prefixes;
  for (const auto& monomials : monomials_of_shapes) {
    for (std::uint32_t i = 0; i < sizes_.size(); ++i) {
      const std::int64_t bytes = point(sizes_[i], monomials);
      set_size(i, {bytes, bytes});
    }
    std::int64_t live = 0;
    std::int64_t peak = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < program_.size(); ++i) {
      live += scratch_[program_[i]];
      if (live > peak) {
        peak = live;
        at = i + 1;
      }
    }
    prefixes.insert(at);
  }
  std::vector<std::vector<double>> rows;
  std::vector<double> sum(columns_);
  for (std::size_t i = 0; i <= program_.size() && rows.size() < most; ++i) {
    if (i > 0) add_polynomial(program_[i - 1], sum);
    if (prefixes.contains(i) && std::ranges::find(rows, sum) == rows.end()) rows.push_back(sum);
  }
  return compress(rows, columns_);
}

}  // namespace pudica::predictor
