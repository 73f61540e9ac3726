#include "policy/quadratic_fit.h"

#include <cstddef>
#include <limits>

#include <Eigen/SVD>

#include "pudica/result.h"

namespace pudica {

std::optional<Quadratic> fit_quadratic(std::span<const double> x, std::span<const double> y) {
  if (x.size() != y.size()) throw BugError("fit_quadratic: as many x as y are needed");
  if (x.empty()) return std::nullopt;
  const auto samples = static_cast<Eigen::Index>(x.size());
  const Eigen::Map<const Eigen::VectorXd> at(x.data(), samples);
  Eigen::MatrixX3d vandermonde(samples, 3);
  vandermonde << at.array().square().matrix(), at, Eigen::VectorXd::Ones(samples);
  Eigen::RowVector3d scale = vandermonde.colwise().norm();
  for (double& length : scale) length = length == 0 ? 1 : length;  // all x are 0
  Eigen::JacobiSVD<Eigen::MatrixXd> svd(vandermonde.array().rowwise() / scale.array(),
                                        Eigen::ComputeThinU | Eigen::ComputeThinV);
  svd.setThreshold(static_cast<double>(x.size()) * std::numeric_limits<double>::epsilon());
  const Eigen::VectorXd solution =
      svd.solve(Eigen::Map<const Eigen::VectorXd>(y.data(), samples)).array() /
      scale.transpose().array();
  Quadratic fit;
  for (std::size_t i = 0; i < fit.coefficients.size(); ++i) {
    fit.coefficients[i] = solution[static_cast<Eigen::Index>(i)];
  }
  return fit;
}

}  // namespace pudica
