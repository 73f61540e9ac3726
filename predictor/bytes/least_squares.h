// Polynomial fit of one quantity over distinct shapes, grown a monomial at a time only as far as
// the residual asks for and the shapes identify; several at once where those fit every shape.
// Columns are scaled and factored with pivoting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pudica::predictor {

// The values of a quantity at distinct shapes: one row of monomials a value.
struct FitSamples {
  std::span<const std::int64_t> monomials;  // row-major, values.size() rows
  std::size_t columns = 0;
  std::span<const std::int64_t> values;
  // Residuals up to this are not worth a further monomial.
  double tolerance = 0.5;
  bool wants_rivals = false;  // for highest()
};

// A fitted polynomial. Immutable after fit(); thread-safe.
class LinearFit {
 public:
  LinearFit() = default;
  // Requires: at least one sample. Order of columns: a later monomial is chosen over an earlier
  // one only where it explains much more.
  static LinearFit fit(const FitSamples& samples);

  [[nodiscard]] double value(std::span<const std::int64_t> monomials) const;
  // x' (X'X)^-1 x of the chosen monomials: above 1 outside of what was seen.
  [[nodiscard]] double leverage(std::span<const std::int64_t> monomials) const;
  // What to add to value() for an upper bound: the largest residual, grown with the leverage.
  [[nodiscard]] double slack(std::span<const std::int64_t> monomials) const;
  // The largest upper bound of this fit and of its rivals, which have another monomial in the place
  // of one of its own and fit nearly as well: what shapes seen in one direction leave open.
  // nullopt: rivals were not wanted, or are too many to try.
  [[nodiscard]] std::optional<double> highest(std::span<const std::int64_t> monomials) const;
  // More shapes than monomials: the residual says something about the fit. Where there are many
  // monomials to choose from, some few of them fit any few shapes: two more.
  [[nodiscard]] bool is_tested() const {
    return samples_ > terms_.size() + (columns_ > kFewColumns ? 1U : 0U);
  }
  [[nodiscard]] double largest_residual() const { return largest_residual_; }

  [[nodiscard]] const std::vector<std::uint8_t>& terms() const { return terms_; }
  [[nodiscard]] std::vector<double> coefficients() const;

 private:
  static constexpr std::size_t kFewColumns = 6;  // two dimensions

  struct Trial;

  static LinearFit from(const Trial& trial, const FitSamples& samples);
  [[nodiscard]] static Trial grow(const FitSamples& samples);
  [[nodiscard]] static std::optional<Trial> with_one_more(const Trial& best,
                                                          const FitSamples& samples);
  [[nodiscard]] static std::optional<Trial> first_that_fit(const FitSamples& samples,
                                                           std::size_t most);
  [[nodiscard]] static std::optional<Trial> all_at_once(const FitSamples& samples);
  [[nodiscard]] static std::vector<LinearFit> rivals_of(const Trial& best,
                                                        const FitSamples& samples);
  [[nodiscard]] std::vector<double> scaled_row(std::span<const std::int64_t> monomials) const;

  std::vector<std::uint8_t> terms_;   // monomials chosen
  std::vector<double> scales_;        // of the chosen columns
  std::vector<double> coefficients_;  // of the scaled columns
  std::vector<double> inverse_gram_;  // row-major, of the scaled columns
  double largest_residual_ = 0;
  double tolerance_ = 0;
  std::size_t samples_ = 0;
  std::size_t columns_ = 0;
  bool has_rivals_ = false;  // they were searched for
  std::vector<LinearFit> rivals_;
};

}  // namespace pudica::predictor
