// How far a time fit may leave plain proportion to the volume: ridge regression whose ridge is
// told by the samples (leaving out, Allen 1974), as times are few at first and noisy.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <Eigen/Dense>

namespace pudica::predictor {

inline constexpr double kLargestRidge = 10.0;

// The ridge in units of one sample, on all that is not along `proportional`: the coefficients of a
// time proportional to the volume.
Eigen::MatrixXd ridge_penalty(const Eigen::VectorXd& proportional, double ridge);

// The largest ridge whose fits tell a shape that is left out of them about as well as any does, or
// `current` where that does: fits that change their ridge move. `features`: one row a sample, each
// relative to its volume; rows that agree are of one shape and are left out together. A ridge of
// its own where there are fewer than four shapes.
double ridge_by_leaving_out(const Eigen::MatrixXd& features, const Eigen::VectorXd& rates,
                            const Eigen::VectorXd& proportional, double current);

}  // namespace pudica::predictor
