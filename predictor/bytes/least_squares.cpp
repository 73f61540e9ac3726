#include "predictor/bytes/least_squares.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <Eigen/Dense>

namespace pudica::predictor {
namespace {

// A further or a later monomial must shrink the sum of squares by this factor.
constexpr double kWorthwhile = 16;
constexpr double kNearlyAsGood = 2;
constexpr std::size_t kMostTerms = 8;
constexpr double kRankThreshold = 1e-9;
// The search for rivals solves a system for every column and term.
constexpr std::size_t kMostColumnsToSearch = 12;  // three dimensions

}  // namespace

// One choice of columns, solved.
struct LinearFit::Trial {
  std::vector<std::uint8_t> terms;
  Eigen::VectorXd scales;
  Eigen::VectorXd coefficients;
  Eigen::MatrixXd inverse_gram;
  double squares = 0;
  double largest_residual = 0;

  // nullopt: the shapes do not tell the columns apart.
  static std::optional<Trial> solve(const FitSamples& samples, std::vector<std::uint8_t> terms) {
    const auto rows = static_cast<Eigen::Index>(samples.values.size());
    const auto columns = static_cast<Eigen::Index>(terms.size());
    Eigen::MatrixXd x(rows, columns);
    Eigen::VectorXd y(rows);
    for (Eigen::Index i = 0; i < rows; ++i) {
      y(i) = static_cast<double>(samples.values[i]);
      for (Eigen::Index j = 0; j < columns; ++j) {
        const std::size_t at = static_cast<std::size_t>(i) * samples.columns + terms[j];
        x(i, j) = static_cast<double>(samples.monomials[at]);
      }
    }
    Trial trial;
    trial.scales = x.cwiseAbs().colwise().maxCoeff().transpose();
    for (Eigen::Index j = 0; j < columns; ++j) x.col(j) /= trial.scales(j);
    Eigen::ColPivHouseholderQR<Eigen::MatrixXd> factors(x);
    factors.setThreshold(kRankThreshold);
    if (factors.rank() < columns) return std::nullopt;
    trial.coefficients = factors.solve(y);
    const Eigen::VectorXd residual = x * trial.coefficients - y;
    trial.squares = residual.squaredNorm();
    trial.largest_residual = residual.cwiseAbs().maxCoeff();
    const Eigen::MatrixXd gram = x.transpose() * x;
    trial.inverse_gram = gram.ldlt().solve(Eigen::MatrixXd::Identity(columns, columns));
    if (!trial.coefficients.allFinite() || !trial.inverse_gram.allFinite()) return std::nullopt;
    trial.terms = std::move(terms);
    return trial;
  }
};

LinearFit LinearFit::from(const Trial& trial, const FitSamples& samples) {
  LinearFit fit;
  fit.terms_ = trial.terms;
  fit.scales_.assign(trial.scales.begin(), trial.scales.end());
  fit.coefficients_.assign(trial.coefficients.begin(), trial.coefficients.end());
  fit.inverse_gram_.assign(trial.inverse_gram.reshaped().begin(),
                           trial.inverse_gram.reshaped().end());
  fit.largest_residual_ = trial.largest_residual;
  fit.tolerance_ = samples.tolerance;
  fit.samples_ = samples.values.size();
  fit.columns_ = samples.columns;
  return fit;
}

std::vector<LinearFit> LinearFit::rivals_of(const Trial& best, const FitSamples& samples) {
  const auto count = static_cast<double>(samples.values.size());
  // Against noise the next best of many choices is hardly worse.
  const double bound = std::max(kWorthwhile * samples.tolerance * samples.tolerance * count,
                                kNearlyAsGood * best.squares);
  std::vector<LinearFit> rivals;
  for (std::size_t place = 0; place < best.terms.size(); ++place) {
    for (std::size_t column = 0; column < samples.columns; ++column) {
      if (std::ranges::find(best.terms, column) != best.terms.end()) continue;
      auto terms = best.terms;
      terms[place] = static_cast<std::uint8_t>(column);
      const auto rival = Trial::solve(samples, std::move(terms));
      if (rival && rival->squares <= bound) rivals.push_back(from(*rival, samples));
    }
  }
  return rivals;
}

// The best with one monomial more; of nearly equal ones the first. nullopt: none is told apart.
std::optional<LinearFit::Trial> LinearFit::with_one_more(const Trial& best,
                                                         const FitSamples& samples) {
  const double floor = samples.tolerance * samples.tolerance;
  std::optional<Trial> next;
  for (std::size_t term = 0; term < samples.columns; ++term) {
    if (std::ranges::find(best.terms, term) != best.terms.end()) continue;
    auto terms = best.terms;
    terms.push_back(static_cast<std::uint8_t>(term));
    auto trial = Trial::solve(samples, std::move(terms));
    if (!trial) continue;
    const bool better =
        !next || std::max(trial->squares, floor) * kWorthwhile < std::max(next->squares, floor);
    if (better) next = std::move(trial);
  }
  return next;
}

LinearFit::Trial LinearFit::grow(const FitSamples& samples) {
  const std::size_t count = samples.values.size();
  const std::size_t most_terms = std::min(kMostTerms, count <= 2 ? count : count - 1);
  Trial best;
  best.squares = 0;
  for (const std::int64_t value : samples.values) {
    best.squares += static_cast<double>(value) * static_cast<double>(value);
    best.largest_residual = std::max(best.largest_residual, std::abs(static_cast<double>(value)));
  }
  while (best.terms.size() < most_terms && best.largest_residual > samples.tolerance) {
    std::optional<Trial> next = with_one_more(best, samples);
    // The first term is always taken: it is better than nothing.
    if (!next || (!best.terms.empty() && next->squares * kWorthwhile > best.squares)) break;
    best = std::move(*next);
  }
  if (best.terms.size() < count) return best;
  auto first = first_that_fit(samples, count);  // any would, of as many as there are shapes
  return first ? std::move(*first) : best;
}

// The first monomials in order of preference, of those that the shapes tell apart, that fit every
// shape. nullopt: more than `most` are needed.
std::optional<LinearFit::Trial> LinearFit::first_that_fit(const FitSamples& samples,
                                                          std::size_t most) {
  std::vector<std::uint8_t> terms;
  for (std::size_t column = 0; column < samples.columns && terms.size() < most; ++column) {
    terms.push_back(static_cast<std::uint8_t>(column));
    auto trial = Trial::solve(samples, terms);
    if (!trial) {
      terms.pop_back();
    } else if (trial->largest_residual <= samples.tolerance) {
      return trial;
    }
  }
  return std::nullopt;
}

// Monomials that explain little one by one may explain all together (batches by tokens: the batch
// falls as a length rises). Taken where they fit every shape with one to spare, and without those
// that are not needed for that.
std::optional<LinearFit::Trial> LinearFit::all_at_once(const FitSamples& samples) {
  const std::size_t count = samples.values.size();
  auto found = first_that_fit(samples, std::min(kMostTerms, count - 1));
  if (!found) return std::nullopt;
  for (std::size_t place = found->terms.size(); place-- > 0 && found->terms.size() > 1;) {
    auto fewer = found->terms;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(place));
    auto without = Trial::solve(samples, std::move(fewer));
    if (without && without->largest_residual <= samples.tolerance) found = std::move(without);
  }
  return found;
}

LinearFit LinearFit::fit(const FitSamples& samples) {
  Trial best = grow(samples);
  if (best.largest_residual > samples.tolerance) {
    if (auto together = all_at_once(samples)) best = std::move(*together);
  }
  LinearFit fit = from(best, samples);
  if (samples.wants_rivals && samples.columns <= kMostColumnsToSearch) {
    fit.has_rivals_ = true;
    fit.rivals_ = rivals_of(best, samples);
  }
  return fit;
}

std::vector<double> LinearFit::scaled_row(std::span<const std::int64_t> monomials) const {
  std::vector<double> row(terms_.size());
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<double>(monomials[terms_[i]]) / scales_[i];
  }
  return row;
}

double LinearFit::value(std::span<const std::int64_t> monomials) const {
  double sum = 0;
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    sum += coefficients_[i] * static_cast<double>(monomials[terms_[i]]) / scales_[i];
  }
  return sum;
}

double LinearFit::leverage(std::span<const std::int64_t> monomials) const {
  const std::vector<double> row = scaled_row(monomials);
  double sum = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    for (std::size_t j = 0; j < row.size(); ++j) {
      sum += row[i] * inverse_gram_[i * row.size() + j] * row[j];
    }
  }
  return std::max(sum, 0.0);
}

double LinearFit::slack(std::span<const std::int64_t> monomials) const {
  if (largest_residual_ <= tolerance_) return 0;
  return largest_residual_ * (1.0 + leverage(monomials));
}

std::optional<double> LinearFit::highest(std::span<const std::int64_t> monomials) const {
  if (!has_rivals_) return std::nullopt;
  double most = value(monomials) + slack(monomials);
  for (const LinearFit& rival : rivals_) {
    most = std::max(most, rival.value(monomials) + rival.slack(monomials));
  }
  return most;
}

std::vector<double> LinearFit::coefficients() const {
  std::vector<double> unscaled(coefficients_.size());
  for (std::size_t i = 0; i < unscaled.size(); ++i) unscaled[i] = coefficients_[i] / scales_[i];
  return unscaled;
}

}  // namespace pudica::predictor
