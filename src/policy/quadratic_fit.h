// A least-squares quadratic in one variable, as numpy.polyfit(x, y, 2) finds it: Mimose's
// estimator.
#pragma once

#include <array>
#include <optional>
#include <span>

namespace pudica {

// y = c[0] x^2 + c[1] x + c[2].
struct Quadratic {
  std::array<double, 3> coefficients{};

  [[nodiscard]] double operator()(double x) const {
    return (coefficients[0] * x + coefficients[1]) * x + coefficients[2];
  }
};

// Least squares by singular values of the Vandermonde matrix with its columns scaled to length 1;
// singular values below n * epsilon times the largest count as zero, which gives the solution of
// least norm (in the scaled coefficients) where fewer than 3 distinct x were seen. That is numpy's
// rule, and no more guard is added. nullopt: no samples. Requires: x.size() == y.size(), finite.
std::optional<Quadratic> fit_quadratic(std::span<const double> x, std::span<const double> y);

}  // namespace pudica
