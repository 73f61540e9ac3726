#include "policy/quadratic_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include "pudica/result.h"

namespace pudica {
namespace {

using Column = std::vector<double>;
constexpr std::size_t kTerms = 3;

double dot(const Column& left, const Column& right) {
  return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
}

// Turns two columns of A, and of V, by the angle that makes the columns of A orthogonal. False:
// they were already, to rounding.
bool rotate(Column& a_left, Column& a_right, Column& v_left, Column& v_right) {
  const double left = dot(a_left, a_left);
  const double right = dot(a_right, a_right);
  const double cross = dot(a_left, a_right);
  constexpr double kOrthogonal = 4 * std::numeric_limits<double>::epsilon();
  if (std::abs(cross) <= kOrthogonal * std::sqrt(left * right)) return false;
  const double zeta = (right - left) / (2 * cross);
  const double tangent = std::copysign(1.0, zeta) / (std::abs(zeta) + std::hypot(1.0, zeta));
  const double cosine = 1 / std::hypot(1.0, tangent);
  const double sine = cosine * tangent;
  const auto turn = [cosine, sine](Column& first, Column& second) {
    for (std::size_t i = 0; i < first.size(); ++i) {
      const double kept = first[i];
      first[i] = cosine * kept - sine * second[i];
      second[i] = sine * kept + cosine * second[i];
    }
  };
  turn(a_left, a_right);
  turn(v_left, v_right);
  return true;
}

// One-sided Jacobi (Hestenes): A V = U S with orthogonal columns. `a` becomes U S; returns V.
std::array<Column, kTerms> orthogonalise(std::array<Column, kTerms>& a) {
  std::array<Column, kTerms> v;
  for (std::size_t i = 0; i < kTerms; ++i) {
    v[i].assign(kTerms, 0.0);
    v[i][i] = 1;
  }
  constexpr int kMaxSweeps = 60;  // three columns converge in about six
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    bool turned = rotate(a[0], a[1], v[0], v[1]);
    turned |= rotate(a[0], a[2], v[0], v[2]);
    turned |= rotate(a[1], a[2], v[1], v[2]);
    if (!turned) break;
  }
  return v;
}

// Vandermonde columns x^2, x, 1, each divided by its length; the lengths go to `scale`.
std::array<Column, kTerms> scaled_vandermonde(std::span<const double> x,
                                              std::array<double, kTerms>& scale) {
  std::array<Column, kTerms> a;
  for (const double value : x) {
    a[0].push_back(value * value);
    a[1].push_back(value);
    a[2].push_back(1);
  }
  for (std::size_t i = 0; i < kTerms; ++i) {
    scale[i] = std::sqrt(dot(a[i], a[i]));
    if (scale[i] == 0) scale[i] = 1;  // all x are 0
    for (double& entry : a[i]) entry /= scale[i];
  }
  return a;
}

}  // namespace

std::optional<Quadratic> fit_quadratic(std::span<const double> x, std::span<const double> y) {
  if (x.size() != y.size()) throw BugError("fit_quadratic: as many x as y are needed");
  if (x.empty()) return std::nullopt;
  std::array<double, kTerms> scale{};
  std::array<Column, kTerms> a = scaled_vandermonde(x, scale);
  const std::array<Column, kTerms> v = orthogonalise(a);

  std::array<double, kTerms> singular{};
  for (std::size_t i = 0; i < kTerms; ++i) singular[i] = std::sqrt(dot(a[i], a[i]));
  const double cutoff = static_cast<double>(x.size()) * std::numeric_limits<double>::epsilon() *
                        *std::max_element(singular.begin(), singular.end());
  Quadratic fit;
  for (std::size_t i = 0; i < kTerms; ++i) {
    if (singular[i] <= cutoff) continue;
    const double along =
        std::inner_product(a[i].begin(), a[i].end(), y.begin(), 0.0) / (singular[i] * singular[i]);
    for (std::size_t term = 0; term < kTerms; ++term) {
      fit.coefficients[term] += along * v[i][term];
    }
  }
  for (std::size_t term = 0; term < kTerms; ++term) fit.coefficients[term] /= scale[term];
  return fit;
}

}  // namespace pudica
