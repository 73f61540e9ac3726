#include "predictor/times/time_ridge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace pudica::predictor {
namespace {

constexpr std::array kRidges = {1e-5, 1e-3, 1e-2, 1e-1, 1.0, kLargestRidge};  // ascending
constexpr double kAlongRidge = 1e-5;     // along the proportional: the samples decide
constexpr double kFewShapesRidge = 0.3;  // where leaving one out leaves too little
constexpr std::size_t kFewShapes = 4;
constexpr double kAboutAsWell = 1.1;

using Rows = std::vector<Eigen::Index>;

std::vector<Rows> rows_by_shape(const Eigen::MatrixXd& features) {
  std::vector<Rows> shapes;
  for (Eigen::Index i = 0; i < features.rows(); ++i) {
    const auto same = std::ranges::find_if(
        shapes, [&](const Rows& rows) { return features.row(rows.front()) == features.row(i); });
    if (same == shapes.end()) {
      shapes.push_back({i});
    } else {
      same->push_back(i);
    }
  }
  return shapes;
}

// The mean absolute error of each sample by the fit without its shape, from the one fit with all:
// residuals of a shape's rows over what their own rates weigh in them, (I - H)^-1 r.
double error_left_out(const Eigen::MatrixXd& features, const Eigen::VectorXd& rates,
                      const std::vector<Rows>& shapes, const Eigen::MatrixXd& penalty) {
  const Eigen::MatrixXd gram = features.transpose() * features + penalty;
  const Eigen::MatrixXd inverse_rows = gram.ldlt().solve(features.transpose());
  const Eigen::VectorXd residuals = rates - features * (inverse_rows * rates);
  double sum = 0;
  for (const Rows& rows : shapes) {
    const auto count = static_cast<Eigen::Index>(rows.size());
    Eigen::MatrixXd rest = Eigen::MatrixXd::Identity(count, count);
    Eigen::VectorXd left(count);
    for (Eigen::Index i = 0; i < count; ++i) {
      const Eigen::Index row = rows[static_cast<std::size_t>(i)];
      left(i) = residuals(row);
      for (Eigen::Index j = 0; j < count; ++j) {
        rest(i, j) -= features.row(row).dot(inverse_rows.col(rows[static_cast<std::size_t>(j)]));
      }
    }
    sum += rest.partialPivLu().solve(left).cwiseAbs().sum();
  }
  return sum / static_cast<double>(rates.size());
}

}  // namespace

Eigen::MatrixXd ridge_penalty(const Eigen::VectorXd& proportional, double ridge) {
  const Eigen::VectorXd along = proportional.normalized();
  return ridge * Eigen::MatrixXd::Identity(along.size(), along.size()) +
         (kAlongRidge - ridge) * along * along.transpose();
}

double ridge_by_leaving_out(const Eigen::MatrixXd& features, const Eigen::VectorXd& rates,
                            const Eigen::VectorXd& proportional, double current) {
  const std::vector<Rows> shapes = rows_by_shape(features);
  if (shapes.size() < kFewShapes) return kFewShapesRidge;
  const auto error_of = [&](double ridge) {
    const double error =
        error_left_out(features, rates, shapes, ridge_penalty(proportional, ridge));
    return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
  };
  std::array<double, kRidges.size()> errors{};
  std::ranges::transform(kRidges, errors.begin(), error_of);
  // Below this all are right: what is left is rounding.
  const double negligible = 1e-9 * rates.cwiseAbs().mean();
  const double well = kAboutAsWell * std::max(negligible, *std::ranges::min_element(errors));
  if (error_of(current) <= well) return current;
  for (std::size_t k = kRidges.size(); k-- > 0;) {
    if (errors[k] <= well) return kRidges[k];
  }
  return kFewShapesRidge;
}

}  // namespace pudica::predictor
