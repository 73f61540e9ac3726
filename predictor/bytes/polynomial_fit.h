// Net and peak of a segment as polynomials of its shapes: where its logs do not say.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "predictor/bytes/event_fit.h"
#include "predictor/bytes/exact_model.h"
#include "predictor/bytes/least_squares.h"
#include "predictor/bytes/monomials.h"

namespace pudica::predictor {

// Of products of dimensions; where those miss and a length counted in tiles explains far more, of
// such counts too (a loop over chunks). Immutable after fit(); thread-safe.
class PolynomialFit {
 public:
  struct Samples {
    const MonomialBasis* basis = nullptr;
    std::vector<std::int64_t> monomials;  // row-major
    std::vector<std::int64_t> net_bytes;  // by row
    std::vector<std::int64_t> peak_bytes;
    double tolerance = 0.5;
  };

  // One of the two, as a function of the monomials of a shape.
  class Quantity {
   public:
    [[nodiscard]] double value(std::span<const std::int64_t> monomials) const;
    [[nodiscard]] double slack(std::span<const std::int64_t> monomials) const;
    // As LinearFit::highest(); with counts, of all countings that do nearly as well.
    [[nodiscard]] std::optional<double> highest(std::span<const std::int64_t> monomials) const;
    // By monomials, a tile counted as its elements.
    [[nodiscard]] PolynomialRows rows() const;

   private:
    friend class PolynomialFit;

    void set_counting(const MonomialBasis& basis, const Form& counting);
    // The monomials, and those with a length counted.
    [[nodiscard]] std::vector<std::int64_t> columns(std::span<const std::int64_t> monomials) const;
    void fit_to(const Samples& samples, std::span<const std::int64_t> bytes);

    const MonomialBasis* basis_ = nullptr;
    std::vector<Form> counted_;  // the columns with a length counted; none: of products alone
    LinearFit fit_;
    std::vector<Quantity> rivals_;  // other countings
  };

  // Requires: at least one sample.
  static PolynomialFit fit(const Samples& samples);

  [[nodiscard]] const Quantity& net() const { return net_; }
  [[nodiscard]] const Quantity& peak() const { return peak_; }
  [[nodiscard]] bool is_tested() const { return net_.fit_.is_tested() && peak_.fit_.is_tested(); }
  [[nodiscard]] double largest_residual() const;

 private:
  static PolynomialFit of(const Samples& samples, const Form& counting);
  static std::vector<PolynomialFit> counted(const Samples& samples, double most_residual);

  Quantity net_;
  Quantity peak_;
};

}  // namespace pudica::predictor
