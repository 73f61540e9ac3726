#include "policy/quadratic_fit.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "pudica/result.h"

namespace pudica {
namespace {

// Expected coefficients: numpy.polyfit(x, y, 2), numpy 2.
struct NumpyCase {
  std::vector<double> x;
  std::vector<double> y;
  std::array<double, 3> coefficients;
};

class QuadraticFitNumpy : public testing::TestWithParam<NumpyCase> {};

TEST_P(QuadraticFitNumpy, AgreesWithPolyfit) {
  const auto fit = fit_quadratic(GetParam().x, GetParam().y);
  ASSERT_TRUE(fit.has_value());
  for (std::size_t term = 0; term < 3; ++term) {
    const double expected = GetParam().coefficients[term];
    EXPECT_NEAR(fit->coefficients[term], expected, 1e-9 * std::abs(expected)) << term;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, QuadraticFitNumpy,
    testing::Values(
        // Two distinct x: the solution of least norm.
        NumpyCase{{64, 64, 128, 128},
                  {10, 12, 30, 32},
                  {0.0011718749999999995, 0.08749999999999998, 0.600000000000005}},
        // One distinct x.
        NumpyCase{{100, 100, 100, 100, 100},
                  {7, 7, 8, 8, 7.5},
                  {0.00025000000000000006, 0.025, 2.500000000000001}},
        NumpyCase{{100}, {50}, {0.0016666666666666668, 0.16666666666666669, 16.666666666666668}},
        // Overdetermined.
        NumpyCase{{17, 460, 230, 99, 310},
                  {3e6, 9.1e8, 2.6e8, 6e7, 4.4e8},
                  {3681.7749380155005, 292440.83789431205, -3632225.3726033336}}));

TEST(QuadraticFit, RecoversRandomQuadraticsFromManyPoints) {
  constexpr unsigned kSeed = 20240611;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  std::uniform_real_distribution<double> coefficient(-1e6, 1e6);
  std::uniform_int_distribution<int> length(1, 4096);
  for (int round = 0; round < 200; ++round) {
    const Quadratic truth{{coefficient(random), coefficient(random), coefficient(random)}};
    std::vector<double> x;
    std::vector<double> y;
    for (int i = 0; i < 12; ++i) {
      x.push_back(length(random));
      y.push_back(truth(x.back()));
    }
    const auto fit = fit_quadratic(x, y);
    ASSERT_TRUE(fit.has_value());
    for (const double at : x) EXPECT_NEAR((*fit)(at), truth(at), 1e-9 * 1e6 * 4096 * 4096);
  }
}

TEST(QuadraticFit, IsNothingWithoutSamplesAndConstantAtZero) {
  EXPECT_FALSE(fit_quadratic({}, {}).has_value());
  const std::vector<double> zeros{0, 0};
  const std::vector<double> values{4, 6};
  EXPECT_DOUBLE_EQ((*fit_quadratic(zeros, values))(0), 5);
}

TEST(QuadraticFit, RefusesUnequalCounts) {
  const std::vector<double> one{1};
  EXPECT_THROW((void)fit_quadratic(one, {}), BugError);
}

}  // namespace
}  // namespace pudica
