// Tests of a predictor whose sizes are rounded up as an allocator does: its parameter, in bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "predictor/kernel_sizes.h"
#include "pudica/predictor.h"

namespace pudica::testing {

inline const SegmentKey kBackward{SegmentKind::kBackward, 0, Mode::keep(), 0};

class RoundedSizes : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void observe(const std::vector<Size>& sizes, const std::vector<ShapeKey>& shapes) {
    for (const ShapeKey& shape : shapes) {
      predictor_->observe(kBackward, shape, sample(sizes, shape, GetParam()));
    }
  }
  void expect_exact(const std::vector<Size>& sizes, const std::vector<ShapeKey>& shapes) {
    for (const ShapeKey& shape : shapes) {
      const auto estimate = predictor_->predict(kBackward, shape);
      const SegmentSample truth = sample(sizes, shape, GetParam());
      EXPECT_EQ(estimate->peak_bytes, truth.peak_bytes) << shape.to_string();
      EXPECT_EQ(estimate->net_bytes, truth.net_bytes) << shape.to_string();
      EXPECT_EQ(estimate->basis, PredictionBasis::kExact) << shape.to_string();
      EXPECT_TRUE(estimate->identified) << shape.to_string();
    }
  }

  std::unique_ptr<Predictor> predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
};

}  // namespace pudica::testing
