// The weaker bases: polynomials of net and peak, one shape scaled, and odd samples of any kind.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "predictor/bytes/least_squares.h"
#include "predictor/bytes/monomials.h"
#include "predictor/synthetic.h"
#include "pudica/predictor.h"

namespace pudica {
namespace {

using testing::SegmentGenerator;

const SegmentKey kForward{SegmentKind::kForward, 0, Mode::keep(), 0};

// Net and peak alone, without a log.
SegmentSample sums(std::int64_t net_bytes, std::int64_t peak_bytes) {
  return {{}, net_bytes, peak_bytes, 0};
}

std::int64_t kept(const ShapeKey& shape) { return 5056 + 9248 * shape[0] * shape[1]; }
std::int64_t peak(const ShapeKey& shape) {
  return kept(shape) + 16 * shape[0] * shape[1] * shape[1];
}

TEST(LeastSquares, FindsTheTermsOnceTheShapesTellThem) {
  const auto predictor = make_online_predictor({});
  for (const ShapeKey& shape :
       {ShapeKey{8, 152}, ShapeKey{3, 120}, ShapeKey{5, 67}, ShapeKey{12, 200}, ShapeKey{6, 333}}) {
    predictor->observe(kForward, shape, sums(kept(shape), peak(shape)));
  }
  const ShapeKey asked{10, 400};
  const auto estimate = predictor->predict(kForward, asked);
  EXPECT_EQ(estimate->basis, PredictionBasis::kLeastSquares);
  EXPECT_TRUE(estimate->identified);
  EXPECT_NEAR(static_cast<double>(estimate->net_bytes), static_cast<double>(kept(asked)), 100);
  EXPECT_NEAR(static_cast<double>(estimate->peak_bytes), static_cast<double>(peak(asked)), 100);
}

// A single other term does better than either of the two that are there.
TEST(LeastSquares, ThreeShapesTellAConstantAndASlope) {
  const auto predictor = make_online_predictor({});
  for (const std::int64_t length : {38, 64, 72}) {
    predictor->observe(kForward, {1, length}, sums(57792 - 1952 * length, 93248));
  }
  EXPECT_EQ(predictor->predict(kForward, {1, 17})->net_bytes, 57792 - 1952 * 17);
}

TEST(LeastSquares, AConstantBatchIsFlaggedAndBounded) {
  const auto predictor = make_online_predictor({});
  for (const std::int64_t length : {50, 90, 120, 200, 333}) {
    const ShapeKey shape{8, length};
    predictor->observe(kForward, shape, sums(kept(shape), peak(shape)));
  }
  EXPECT_TRUE(predictor->predict(kForward, {8, 250})->identified);
  const ShapeKey other{16, 250};
  const auto estimate = predictor->predict(kForward, other);
  EXPECT_FALSE(estimate->identified);
  EXPECT_GE(estimate->peak_upper_bytes, peak(other));
  EXPECT_GE(estimate->net_upper_bytes, kept(other));
  // Fewer rows: nothing says that bytes shrink with them.
  EXPECT_GE(predictor->predict(kForward, {4, 250})->peak_upper_bytes, peak({8, 250}));
}

TEST(LeastSquares, TwoShapesAreFlagged) {
  const auto predictor = make_online_predictor({});
  for (const ShapeKey& shape : {ShapeKey{8, 152}, ShapeKey{3, 120}}) {
    predictor->observe(kForward, shape, sums(kept(shape), kept(shape)));
  }
  const auto estimate = predictor->predict(kForward, {12, 300});
  EXPECT_FALSE(estimate->identified);
  EXPECT_GE(estimate->net_upper_bytes, estimate->net_bytes);
  EXPECT_GE(estimate->net_upper_bytes, kept({12, 300}));
}

// A loop over the positions allocates once for each, so that the log belongs to one length: two
// batches of that length share it, and it says nothing of other lengths.
TEST(LeastSquares, LogsThatGrowWithTheLengthDoNotStandForOtherLengths) {
  const auto loop_at = [](const ShapeKey& shape) {
    SegmentSample sample;
    const auto add = [&](std::int64_t bytes) {
      sample.deltas.push_back(bytes);
      sample.net_bytes += bytes;
      sample.peak_bytes = std::max(sample.peak_bytes, sample.net_bytes);
    };
    for (std::int64_t i = 0; i < shape[1]; ++i) {
      add(512 * shape[0]);
      add(256 * shape[0]);
      add(-256 * shape[0]);
    }
    return sample;
  };
  const auto predictor = make_online_predictor({});
  for (const ShapeKey& shape : {ShapeKey{2, 59}, ShapeKey{3, 27}, ShapeKey{4, 17}, ShapeKey{4, 89},
                                ShapeKey{2, 40}, ShapeKey{3, 40}}) {
    predictor->observe(kForward, shape, loop_at(shape));
  }
  for (const ShapeKey& asked : {ShapeKey{2, 69}, ShapeKey{4, 120}, ShapeKey{3, 12}}) {
    const auto estimate = predictor->predict(kForward, asked);
    const SegmentSample truth = loop_at(asked);
    EXPECT_EQ(estimate->basis, PredictionBasis::kLeastSquares);
    EXPECT_NEAR(static_cast<double>(estimate->net_bytes), static_cast<double>(truth.net_bytes), 8);
    EXPECT_NEAR(static_cast<double>(estimate->peak_bytes), static_cast<double>(truth.peak_bytes),
                8);
    EXPECT_GE(estimate->peak_upper_bytes, truth.peak_bytes - 8);
  }
}

// Batches by tokens (the batch falls as the length rises) whose logs differ in small buffers: two
// shapes share one, which leaves sizes open; the sums of all shapes do not.
TEST(LeastSquares, SumsOfAllShapesBoundWhatOneLogLeavesOpen) {
  const auto layer_at = [](const ShapeKey& shape, int buffers) {
    const std::int64_t tokens = shape[0] * shape[1];
    SegmentSample sample;
    const auto add = [&](std::int64_t bytes) {
      sample.deltas.push_back(bytes);
      sample.net_bytes += bytes;
      sample.peak_bytes = std::max(sample.peak_bytes, sample.net_bytes);
    };
    add(31744);
    for (int i = 0; i < buffers; ++i) {
      add(64);
      add(-64);
    }
    // Two terms each, which two shapes do not tell from others.
    add(40960 + 1024 * tokens);
    add(30720 + 1016 * tokens);
    add(-30720 - 1016 * tokens);
    add(-40960 - 1024 * tokens);
    return sample;
  };
  const auto predictor = make_online_predictor({});
  const std::vector<std::pair<ShapeKey, int>> seen = {{{9, 27}, 7}, {{15, 17}, 3}, {{6, 40}, 5},
                                                      {{5, 51}, 8}, {{6, 39}, 4},  {{3, 83}, 7}};
  for (const auto& [shape, buffers] : seen) {
    predictor->observe(kForward, shape, layer_at(shape, buffers));
  }
  for (const ShapeKey& asked : {ShapeKey{3, 69}, ShapeKey{2, 96}, ShapeKey{4, 60}}) {
    const auto estimate = predictor->predict(kForward, asked);
    const std::int64_t truth = layer_at(asked, 6).peak_bytes;
    EXPECT_EQ(estimate->peak_bytes, truth);
    EXPECT_GE(estimate->peak_upper_bytes, truth);
    EXPECT_LE(estimate->peak_upper_bytes, truth + truth / 100) << asked[0] << 'x' << asked[1];
  }
}

// The same where every batch has as many tokens: what a size depends on stays open, and is bounded.
TEST(LeastSquares, BatchesOfOneSizeLeaveTheirSizeOpen) {
  const auto predictor = make_online_predictor({});
  int buffers = 0;
  for (const ShapeKey& shape : {ShapeKey{12, 20}, ShapeKey{6, 40}, ShapeKey{4, 60}, ShapeKey{3, 80},
                                ShapeKey{2, 120}, ShapeKey{24, 10}}) {
    SegmentSample sample;
    buffers = (buffers + 1) % 4;
    for (int i = 0; i < buffers; ++i) {
      sample.deltas.push_back(64);
      sample.deltas.push_back(-64);
    }
    sample.deltas.push_back(512 * shape[0] * shape[1]);
    sample.net_bytes = sample.peak_bytes = sample.deltas.back();
    predictor->observe(kForward, shape, sample);
  }
  const auto estimate = predictor->predict(kForward, {8, 120});
  EXPECT_GE(estimate->peak_upper_bytes, 512 * 8 * 120);
}

// Of the twelve monomials of three dimensions some three fit any four shapes. What is called
// identified must be right.
TEST(LeastSquares, FewShapesOfThreeDimensionsAreFlagged) {
  const auto truth = [](const ShapeKey& shape) {
    return 4096 + shape[0] * (2048 * shape[1] + 3072 * shape[2] + 16 * shape[1] * shape[2]);
  };
  SegmentGenerator random(/*seed=*/5, 3);
  int identified = 0;
  int wrong = 0;
  for (int round = 0; round < 200; ++round) {
    const auto predictor = make_online_predictor({});
    const std::int64_t shapes = 3 + round % 10;
    const auto by_tokens = [&] {
      const std::int64_t source = random.uniform(10, 100);
      return ShapeKey{std::max<std::int64_t>(1, 300 / source), source,
                      std::max<std::int64_t>(4, source * random.uniform(5, 15) / 10)};
    };
    for (std::int64_t i = 0; i < shapes; ++i) {
      const ShapeKey shape = by_tokens();
      predictor->observe(kForward, shape, sums(-truth(shape), 64));
    }
    const ShapeKey asked = by_tokens();
    const auto estimate = predictor->predict(kForward, asked);
    if (!estimate->identified) continue;
    ++identified;
    const auto wanted = static_cast<double>(-truth(asked));
    const double off = std::abs(static_cast<double>(estimate->net_bytes) - wanted) / -wanted;
    if (off > 0.01) ++wrong;
    EXPECT_LE(off, 0.1) << "round " << round;
    EXPECT_GE(static_cast<double>(estimate->net_upper_bytes) + 8, wanted) << "round " << round;
  }
  EXPECT_LE(wrong, 4) << "by chance a wrong choice fits as well as a noisy right one";
  EXPECT_GE(identified, 60);
}

TEST(LeastSquares, NoiseWidensTheUpperBound) {
  constexpr std::uint64_t kSeed = 99;
  SegmentGenerator random(kSeed, 2);
  const auto predictor = make_online_predictor({});
  for (int i = 0; i < 30; ++i) {
    const ShapeKey shape = random.shape();
    const std::int64_t bytes = kept(shape) + random.uniform(-50000, 50000);
    predictor->observe(kForward, shape, sums(bytes, bytes));
  }
  int covered = 0;
  for (int i = 0; i < 100; ++i) {
    const ShapeKey asked = random.shape();
    const auto estimate = predictor->predict(kForward, asked);
    const std::int64_t bytes = kept(asked) + random.uniform(-50000, 50000);
    if (estimate->net_upper_bytes >= bytes) ++covered;
    EXPECT_NEAR(static_cast<double>(estimate->net_bytes), static_cast<double>(kept(asked)), 60000)
        << "seed " << kSeed << " " << asked.to_string();
  }
  EXPECT_GE(covered, 95) << "seed " << kSeed;
}

TEST(LeastSquares, TakesNoMoreTermsThanTheShapesTellApart) {
  const auto& basis = predictor::MonomialBasis::of(2);
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> values;
  for (const std::int64_t length : {10, 20, 30, 47, 61}) {
    std::vector<std::int64_t> row(basis.size());
    basis.evaluate(ShapeKey{8, length}, row);
    rows.insert(rows.end(), row.begin(), row.end());
    values.push_back(1000 + 7 * length * length * length);  // no polynomial of the basis
  }
  const auto fit = predictor::LinearFit::fit(
      {.monomials = rows, .columns = basis.size(), .values = values, .tolerance = 1});
  EXPECT_LE(fit.terms().size(), 3U);  // 1, S and S^2 are all that a constant batch tells
  EXPECT_TRUE(fit.is_tested());
  std::vector<std::int64_t> far(basis.size());
  basis.evaluate(ShapeKey{8, 600}, far);
  EXPECT_GT(fit.leverage(far), 1.0);
  EXPECT_GT(fit.slack(far), fit.largest_residual());
}

TEST(Scaled, OneSampleWithoutLogGrowsWithTheVolume) {
  const auto predictor = make_online_predictor({});
  predictor->observe(kForward, {8, 100}, sums(8000, 16000));
  const auto larger = predictor->predict(kForward, {8, 200});
  EXPECT_EQ(larger->basis, PredictionBasis::kScaled);
  EXPECT_EQ(larger->net_bytes, 16000);
  EXPECT_EQ(larger->peak_upper_bytes, 32000);
  EXPECT_FALSE(larger->identified);
  const auto smaller = predictor->predict(kForward, {8, 50});
  EXPECT_EQ(smaller->peak_bytes, 8000);
  EXPECT_EQ(smaller->peak_upper_bytes, 16000);
}

// All of it may belong to the one length that grows.
TEST(Scaled, OneOrTwoSamplesBoundWhatBelongsToOneOfTwoLengths) {
  SegmentGenerator random(/*seed=*/11, 3);
  const auto any_shape = [&] {
    return ShapeKey{random.uniform(1, 16), random.uniform(8, 128), random.uniform(8, 128)};
  };
  for (int round = 0; round < 200; ++round) {
    const std::int64_t source = random.uniform(0, 4) * 256;
    const std::int64_t target = random.uniform(0, 4) * 512 + 64;
    const auto truth = [&](const ShapeKey& shape) {
      return shape[0] * (source * shape[1] + target * shape[2]);
    };
    const auto predictor = make_online_predictor({});
    const ShapeKey asked = any_shape();
    for (int samples = 1; samples <= 2; ++samples) {
      const ShapeKey seen = any_shape();
      predictor->observe(kForward, seen, sums(truth(seen), truth(seen)));
      const auto estimate = predictor->predict(kForward, asked);
      EXPECT_GE(estimate->net_upper_bytes, truth(asked)) << "round " << round << ", " << samples;
      EXPECT_GE(estimate->peak_upper_bytes, truth(asked)) << "round " << round << ", " << samples;
    }
  }
}

TEST(Predictor, KnowsNothingOfWhatItNeverSaw) {
  const auto predictor = make_online_predictor({});
  EXPECT_FALSE(predictor->predict(kForward, {8, 100}).has_value());
  EXPECT_EQ(predictor->distinct_shapes(kForward), 0);
  predictor->observe(kForward, {8, 100}, sums(1, 2));
  EXPECT_FALSE(predictor->predict(kForward, {8, 100, 3}).has_value());
  EXPECT_EQ(predictor->segments(), std::vector<SegmentKey>{kForward});
  const std::uint64_t version = predictor->version();
  predictor->forget(kForward);
  EXPECT_GT(predictor->version(), version);
  EXPECT_FALSE(predictor->predict(kForward, {8, 100}).has_value());
}

TEST(Predictor, OtherDimensionsStartASegmentAfresh) {
  const auto predictor = make_online_predictor({});
  predictor->observe(kForward, {8, 100}, sums(1, 2));
  predictor->observe(kForward, {8, 100, 50}, sums(3, 4));
  EXPECT_EQ(predictor->distinct_shapes(kForward), 1);
  EXPECT_EQ(predictor->predict(kForward, {8, 100, 50})->peak_bytes, 4);
}

TEST(Predictor, OddSamplesNeitherThrowNorBreakWhatTheySay) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  const std::vector<SegmentSample> odd{
      {{}, kMost, kMost, 1e308},
      {{}, kLeast, kLeast, -1},
      {{kMost, kMost, kLeast}, 5, 3, std::numeric_limits<double>::quiet_NaN()},
      {{0, 0, 0}, 0, 0, std::numeric_limits<double>::infinity()},
      {{-100}, -100, 0, 1e-300},
      {{100}, 50, 10, 1},
      {std::vector<std::int64_t>(70000, 1), 70000, 70000, 1},
  };
  const std::vector<ShapeKey> shapes{{8, 100}, {0, -5}, {kMost, kMost}, {kLeast, 1}, {1, 1}};
  for (const std::int64_t granularity : {std::int64_t{1}, std::int64_t{512}, kLeast, kMost}) {
    const auto predictor =
        make_online_predictor({granularity, std::numeric_limits<double>::quiet_NaN(), -3});
    for (std::size_t round = 0; round < 2 * odd.size() * shapes.size(); ++round) {
      predictor->observe(kForward, shapes[round % shapes.size()], odd[round % odd.size()]);
      for (const ShapeKey& shape : shapes) {
        const auto estimate = predictor->predict(kForward, shape);
        ASSERT_TRUE(estimate.has_value());
        ASSERT_GE(estimate->peak_bytes, std::max<std::int64_t>(estimate->net_bytes, 0));
        ASSERT_GE(estimate->peak_upper_bytes, estimate->peak_bytes);
        ASSERT_GE(estimate->net_upper_bytes, estimate->net_bytes);
        ASSERT_GE(estimate->seconds, 0);
      }
      (void)predictor->describe();
      ASSERT_TRUE(make_online_predictor({})->restore(predictor->serialize()).has_value());
    }
  }
  const auto predictor = make_online_predictor({});
  predictor->observe(kForward, ShapeKey(), sums(1, 2));
  EXPECT_EQ(predictor->predict(kForward, ShapeKey())->peak_bytes, 2);
  EXPECT_FALSE(predictor->describe().empty());
}

TEST(Predictor, RandomContradictionsNeverThrow) {
  constexpr std::uint64_t kSeed = 4;
  SegmentGenerator random(kSeed, 2);
  const auto predictor = make_online_predictor({.max_samples_per_segment = 12});
  for (int i = 0; i < 600; ++i) {
    const ShapeKey shape = random.shape(6, 40);
    SegmentSample sample =
        random.segment(static_cast<std::size_t>(random.uniform(0, 12))).at(shape);
    if (random.uniform(0, 3) == 0) sample.deltas.clear();
    predictor->observe(kForward, shape, sample);
    const auto same = predictor->predict(kForward, shape);
    ASSERT_EQ(same->peak_bytes, sample.peak_bytes) << "seed " << kSeed << " step " << i;
    ASSERT_LE(predictor->distinct_shapes(kForward), 12);
    const auto other = predictor->predict(kForward, random.shape());
    ASSERT_GE(other->peak_upper_bytes, other->peak_bytes);
    ASSERT_GE(other->peak_bytes, other->net_bytes);
  }
}

}  // namespace
}  // namespace pudica
