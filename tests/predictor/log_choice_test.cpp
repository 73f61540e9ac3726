// Segments whose logs differ from one shape to another: each shape is read from those of its like.
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "predictor/kernel_sizes.h"
#include "pudica/predictor.h"

namespace pudica {
namespace {

using testing::kMask;
using testing::kPlain;
using testing::sample;
using testing::Size;
using testing::up;

const SegmentKey kBackward{SegmentKind::kBackward, 0, Mode::keep(), 0};

class LogChoice : public ::testing::Test {
 protected:
  using Logs = std::function<SegmentSample(const ShapeKey&)>;

  void observe(const std::vector<ShapeKey>& shapes) {
    for (const ShapeKey& shape : shapes) predictor_->observe(kBackward, shape, truth_(shape));
  }
  void expect_exact(const std::vector<ShapeKey>& shapes) {
    for (const ShapeKey& shape : shapes) {
      const auto estimate = predictor_->predict(kBackward, shape);
      EXPECT_EQ(estimate->peak_bytes, truth_(shape).peak_bytes) << shape.to_string();
      EXPECT_EQ(estimate->net_bytes, truth_(shape).net_bytes) << shape.to_string();
      EXPECT_TRUE(estimate->identified) << shape.to_string();
    }
  }
  void expect_bounded(const std::vector<ShapeKey>& shapes) {
    for (const ShapeKey& shape : shapes) {
      const auto estimate = predictor_->predict(kBackward, shape);
      EXPECT_FALSE(estimate->identified) << shape.to_string();
      EXPECT_GE(estimate->peak_upper_bytes, truth_(shape).peak_bytes) << shape.to_string();
    }
  }

  // As many stages as `rows` have limits below them.
  static Logs in_stages(std::vector<std::int64_t> limits) {
    return [limits = std::move(limits)](const ShapeKey& shape) {
      std::vector<Size> sizes(2, kPlain);
      for (const std::int64_t limit : limits) {
        if (shape[0] * shape[1] >= limit) sizes.push_back(kPlain);
      }
      return sample(sizes, shape, 1);
    };
  }

  std::unique_ptr<Predictor> predictor_ = make_online_predictor({});
  Logs truth_;
};

// Attention pads a mask whose length is no whole vector.
TEST_F(LogChoice, ByWholeVectors) {
  truth_ = [](const ShapeKey& shape) {
    std::vector<Size> sizes{kPlain, kPlain};
    if (shape[1] % 8 != 0) sizes.push_back(kMask);
    return sample(sizes, shape, 1);
  };
  observe({{16, 121}, {12, 264}, {12, 133}, {16, 296}, {12, 305}, {16, 410}, {16, 88}});
  expect_exact({{16, 77}, {16, 80}, {12, 400}, {16, 423}, {8, 96}, {16, 504}});
}

// Of padded masks one call alone is known: a shape that pads as well needs more than the whole
// vectors do, about as that one did. Those of whole vectors are as exact as before.
TEST_F(LogChoice, OneOfItsLikeMovesAShape) {
  truth_ = [](const ShapeKey& shape) {
    std::vector<Size> sizes{kPlain, kPlain};
    if (shape[1] % 8 != 0) sizes.push_back(kMask);
    return sample(sizes, shape, 1);
  };
  observe({{16, 264}, {16, 296}, {16, 410}, {16, 88}});
  expect_exact({{16, 80}, {16, 400}, {16, 504}});
  expect_bounded({{16, 420}, {16, 505}, {16, 399}, {16, 101}});
  for (const ShapeKey& asked : {ShapeKey{16, 420}, ShapeKey{16, 399}}) {
    const auto estimate = predictor_->predict(kBackward, asked);
    const std::int64_t whole = sample({kPlain, kPlain}, asked, 1).peak_bytes;
    EXPECT_GT(estimate->peak_bytes, whole);
    EXPECT_LT(std::abs(estimate->peak_bytes - truth_(asked).peak_bytes),
              truth_(asked).peak_bytes / 20);
  }
}

// A large sum is taken in more stages than a small one. What lies between the sizes seen may be
// either.
TEST_F(LogChoice, BySize) {
  truth_ = in_stages({3000});
  observe({{16, 121}, {12, 264}, {12, 133}, {16, 296}, {12, 305}, {16, 410}, {16, 89}});
  expect_exact({{16, 77}, {16, 80}, {12, 400}, {16, 423}, {8, 96}, {16, 504}});
  expect_bounded({{16, 150}, {16, 180}, {12, 230}});
}

TEST_F(LogChoice, OfThreeSizes) {
  truth_ = in_stages({2000, 5000});
  observe({{16, 401}, {16, 77}, {16, 205}, {16, 101}, {16, 451}, {16, 251}, {16, 91}});
  expect_exact({{16, 430}, {16, 512}, {16, 230}, {16, 84}, {16, 40}});
}

// Of few shapes those that are large may all be whole vectors, or none: either may be what counts.
TEST_F(LogChoice, WhereTwoThingsTellTheLargerCounts) {
  truth_ = in_stages({3000});
  observe({{16, 64}, {16, 401}, {16, 128}, {16, 451}, {16, 333}, {16, 291}, {16, 371}});
  expect_exact({{16, 403}, {16, 501}, {16, 56}});
  expect_bounded({{16, 400}, {16, 320}, {16, 512}, {16, 63}});
}

// Layers of one class free a block sooner or later by what stands behind them: at each shape the
// one log takes the other's place, and comes to the same.
TEST_F(LogChoice, AnOrderThatComesToTheSameIsNoNews) {
  for (const bool other_first : {false, true}) {
    predictor_ = make_online_predictor({});
    const Size kTiled = [](const ShapeKey& s) { return s[0] * up(s[1], 128) * 3072; };
    const auto in_order = [&](const ShapeKey& shape, bool other) {
      SegmentSample out = sample({kPlain, kTiled, kPlain}, shape, 1);
      out.deltas.push_back(1024);
      if (other)
        std::ranges::rotate(out.deltas.begin() + 4, out.deltas.begin() + 5, out.deltas.end());
      out.net_bytes += 1024;
      return out;
    };
    truth_ = [&](const ShapeKey& shape) { return in_order(shape, false); };
    int k = 0;
    for (const ShapeKey& shape : {ShapeKey{16, 121}, ShapeKey{12, 264}, ShapeKey{12, 133},
                                  ShapeKey{16, 396}, ShapeKey{12, 405}}) {
      const bool first = (++k % 2 == 0) == other_first;
      predictor_->observe(kBackward, shape, in_order(shape, first));
      predictor_->observe(kBackward, shape, in_order(shape, !first));
    }
    expect_exact({{16, 77}, {12, 400}, {16, 304}});
  }
}

// What a segment was at first, and is no more, answers for nothing.
TEST_F(LogChoice, NotByWhatItWasBefore) {
  const Logs settled = in_stages({0});
  truth_ = in_stages({});
  observe({{16, 65}, {16, 73}});
  truth_ = settled;
  observe({{16, 201}, {16, 222}, {16, 239}, {16, 258}, {16, 277}, {16, 296}, {16, 317}, {16, 336}});
  expect_exact({{16, 100}, {16, 80}, {16, 128}, {16, 402}});
}

// Lengths that rise, and kinds of shapes that are measured one after the other: what came first is
// no less true.
TEST_F(LogChoice, OfKindsThatCameOneAfterTheOther) {
  truth_ = in_stages({5000});
  observe({{16, 64}, {16, 90}, {16, 121}, {16, 133}, {16, 150}, {16, 401}, {16, 451}});
  expect_exact({{16, 512}, {16, 425}, {16, 100}});
  predictor_ = make_online_predictor({});
  truth_ = [](const ShapeKey& shape) {
    std::vector<Size> sizes{kPlain, kPlain};
    if (shape[1] % 8 != 0) sizes.push_back(kMask);
    return sample(sizes, shape, 1);
  };
  observe({{16, 64}, {12, 128}, {16, 256}, {12, 320}, {16, 101}, {12, 203}, {16, 175}});
  expect_exact({{16, 150}, {16, 160}, {12, 304}, {12, 190}});
}

// A loop over the batch, whose log is that of one: polynomials know all of them.
TEST_F(LogChoice, PolynomialsWhereEachBatchHasItsLog) {
  truth_ = [](const ShapeKey& shape) {
    return sample(std::vector<Size>(static_cast<std::size_t>(shape[0]),
                                    [](const ShapeKey& s) { return 512 * s[1]; }),
                  shape, 1);
  };
  observe({{4, 59}, {4, 70}, {4, 81}, {8, 59}, {8, 77}, {8, 90}});
  for (const ShapeKey& asked : {ShapeKey{6, 66}, ShapeKey{16, 80}, ShapeKey{2, 60}}) {
    EXPECT_EQ(predictor_->predict(kBackward, asked)->peak_bytes, truth_(asked).peak_bytes);
  }
}

// Samples that say nothing new of bytes still tell whose shapes they are: as a restored state does.
TEST_F(LogChoice, IsTheSameOnceRestored) {
  truth_ = in_stages({3000});
  observe({{16, 401}, {16, 77}, {16, 450}, {12, 101}, {16, 423}, {12, 451}, {16, 91}, {12, 77}});
  for (std::int64_t length = 300; length >= 190; length -= 10) observe({{16, length}});
  const auto restored = make_online_predictor({});
  ASSERT_TRUE(restored->restore(predictor_->serialize()).has_value());
  for (std::int64_t length = 20; length <= 500; ++length) {
    const ShapeKey shape{16, length};
    const auto live = predictor_->predict(kBackward, shape);
    const auto again = restored->predict(kBackward, shape);
    EXPECT_EQ(live->peak_bytes, again->peak_bytes) << length;
    EXPECT_EQ(live->identified, again->identified) << length;
  }
}

}  // namespace
}  // namespace pudica
