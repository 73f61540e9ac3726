// Segments whose logs differ from one shape to another: each shape is read from those of its like.
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <utility>
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

// Of two chunks one call alone is known, and many of one: what is about as long needs about as
// much.
TEST_F(LogChoice, OneThatIsAsLongMovesAShape) {
  truth_ = [](const ShapeKey& shape) {
    const auto chunks = static_cast<std::size_t>(1 + (shape[1] - 1) / 64);
    return sample(std::vector<Size>(1 + 2 * chunks, kPlain), shape, 1);
  };
  observe({{16, 20}, {12, 31}, {8, 33}, {12, 44}, {9, 50}, {16, 27}, {2, 37}, {16, 97}});
  expect_exact({{16, 40}, {8, 25}, {4, 35}});
  expect_bounded({{16, 90}, {12, 101}, {8, 77}});
  const auto estimate = predictor_->predict(kBackward, {12, 90});
  EXPECT_EQ(estimate->peak_bytes, truth_({12, 90}).peak_bytes);
}

// A large sum is taken in more stages than a small one. What lies between the sizes seen may be
// either.
TEST_F(LogChoice, BySize) {
  truth_ = in_stages({3000});
  observe({{16, 121}, {12, 264}, {12, 133}, {16, 296}, {12, 305}, {16, 410}, {16, 89}});
  expect_exact({{16, 77}, {16, 80}, {12, 400}, {16, 423}, {8, 96}, {16, 504}});
  expect_bounded({{16, 150}, {16, 180}, {12, 230}});
}

// A loop over chunks goes once more from some length on, whatever the batch: a few long rows are
// less than many short ones.
TEST_F(LogChoice, ByALength) {
  truth_ = [](const ShapeKey& shape) {
    return sample(std::vector<Size>(static_cast<std::size_t>(2 + (shape[1] - 1) / 64), kPlain),
                  shape, 1);
  };
  observe(
      {{3, 78}, {4, 63}, {6, 57}, {2, 68}, {3, 87}, {2, 113}, {5, 45}, {2, 70}, {6, 44}, {4, 101}});
  expect_exact({{8, 33}, {2, 62}, {1, 96}, {9, 80}, {2, 55}, {12, 110}});
  expect_bounded({{3, 65}, {4, 64}});
}

// Each of eight logs answers for its own lengths, where no sum of all explains them.
TEST_F(LogChoice, OfAsManyLengthsAsALoopHas) {
  truth_ = [](const ShapeKey& shape) {
    const std::int64_t chunks = 1 + (shape[1] - 1) / 64;
    std::vector<Size> sizes(static_cast<std::size_t>(2 + chunks), kPlain);
    sizes.emplace_back(
        [chunks](const ShapeKey& s) { return s[0] * (chunks * 7919 % 13 + 1) * 65536; });
    return sample(sizes, shape, 1);
  };
  const std::vector<std::pair<std::int64_t, std::int64_t>> seen{{3, 11}, {2, 29}, {4, 53}};
  const auto one_of_each = [&](const std::pair<std::int64_t, std::int64_t>& rows) {
    for (std::int64_t chunk = 0; chunk < 8; ++chunk) {
      observe({{rows.first, 64 * chunk + rows.second}});
    }
  };
  std::ranges::for_each(seen, one_of_each);
  for (std::int64_t chunk = 0; chunk < 8; ++chunk) expect_exact({{3, 64 * chunk + 37}});
  // Rising, and falling: what came first is no less true.
  for (const bool falls : {false, true}) {
    predictor_ = make_online_predictor({});
    for (std::int64_t i = 0; i < 8; ++i) {
      const std::int64_t chunk = falls ? 7 - i : i;
      for (const auto& [batch, more] : seen) observe({{batch, 64 * chunk + more}});
    }
    for (std::int64_t chunk = 0; chunk < 8; ++chunk) expect_exact({{3, 64 * chunk + 37}});
  }
}

// Only whole chunks of 64 need no padding, though others are whole vectors.
TEST_F(LogChoice, ByWholeChunks) {
  truth_ = [](const ShapeKey& shape) {
    std::vector<Size> sizes{kPlain, kPlain};
    if (shape[1] % 64 != 0) sizes.push_back(kPlain);
    return sample(sizes, shape, 1);
  };
  observe({{4, 121}, {3, 264}, {3, 128}, {4, 296}, {2, 320}, {4, 410}, {4, 88}, {3, 96}, {2, 160}});
  expect_exact({{4, 77}, {4, 80}, {3, 400}, {4, 423}, {8, 192}, {2, 256}, {4, 32}});
}

// Where a shape may be of any of several, the bound is that of the largest.
TEST_F(LogChoice, BoundedByAllThatItMayBe) {
  truth_ = [](const ShapeKey& shape) {
    const std::int64_t more = shape[1] > 400 ? 1 : shape[1] > 200 ? 7 : 0;
    return sample(std::vector<Size>(static_cast<std::size_t>(2 + more), kPlain), shape, 1);
  };
  for (const bool reversed : {false, true}) {
    predictor_ = make_online_predictor({});
    std::vector<ShapeKey> shapes{{4, 121}, {4, 130}, {4, 301}, {4, 333}, {4, 451}, {4, 475}};
    if (reversed)
      std::ranges::swap_ranges(shapes.begin(), shapes.begin() + 2, shapes.begin() + 2,
                               shapes.begin() + 4);
    observe(shapes);
    expect_exact({{4, 311}, {4, 460}, {4, 125}});
    expect_bounded({{4, 150}, {4, 205}, {4, 298}, {4, 340}, {4, 399}, {4, 402}});
  }
}

// A loop that goes as often as two lengths are together: no log's shapes are apart from another's,
// and all sums are known.
TEST_F(LogChoice, LogsThatAreNotToldApartAnswerForNothing) {
  truth_ = [](const ShapeKey& shape) {
    return sample(std::vector<Size>(static_cast<std::size_t>(shape[1] + shape[2]),
                                    [](const ShapeKey& s) { return 4096 * s[0]; }),
                  shape, 1);
  };
  observe({{4, 5, 15},
           {6, 15, 5},
           {5, 6, 14},
           {4, 5, 20},
           {5, 20, 5},
           {6, 9, 16},
           {4, 10, 20},
           {6, 20, 10},
           {5, 12, 18},
           {4, 8, 9},
           {6, 9, 8},
           {5, 30, 3},
           {4, 3, 30},
           {6, 16, 17}});
  for (const ShapeKey& asked : {ShapeKey{6, 10, 10}, ShapeKey{6, 12, 12}, ShapeKey{5, 5, 5}}) {
    const auto estimate = predictor_->predict(kBackward, asked);
    EXPECT_EQ(estimate->peak_bytes, truth_(asked).peak_bytes) << asked.to_string();
  }
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

// A loop over chunks of 16, the shapes at random: logs, and sums of all shapes, each fit for a
// while.
TEST_F(LogChoice, SumsAreTheSameOnceRestored) {
  truth_ = [](const ShapeKey& shape) {
    return sample(std::vector<Size>(static_cast<std::size_t>(2 + (shape[1] - 1) / 16), kPlain),
                  shape, 1);
  };
  for (unsigned seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    const auto drawn = [&random] {
      const auto batch = static_cast<std::int64_t>(2 + random() % 15);
      return ShapeKey{batch, static_cast<std::int64_t>(10 + random() % 81)};
    };
    predictor_ = make_online_predictor({});
    for (int step = 0; step < 30; ++step) {
      observe({drawn()});
      const auto restored = make_online_predictor({});
      ASSERT_TRUE(restored->restore(predictor_->serialize()).has_value());
      for (int probe = 0; probe < 8; ++probe) {
        const ShapeKey shape = drawn();
        const auto live = predictor_->predict(kBackward, shape);
        const auto again = restored->predict(kBackward, shape);
        ASSERT_EQ(live->peak_bytes, again->peak_bytes)
            << shape.to_string() << " seed " << seed << " step " << step;
        ASSERT_EQ(live->peak_upper_bytes, again->peak_upper_bytes) << shape.to_string();
        ASSERT_EQ(live->identified, again->identified) << shape.to_string();
      }
    }
  }
}

}  // namespace
}  // namespace pudica
