// The exact basis: logs matched event by event.
#include <algorithm>

#include <gtest/gtest.h>

#include "predictor/synthetic.h"
#include "pudica/predictor.h"

namespace pudica {
namespace {

using testing::Event;
using testing::SyntheticSegment;
using testing::Term;
using testing::without_log;

const SegmentKey kForward{SegmentKind::kForward, 0, Mode::keep(), 0};
const SegmentKey kOptimizer{SegmentKind::kOptimizer, 0, Mode::keep(), 0};

const Term kLinear{4 * 128, {1, 1}};
const Term kQuadratic{4 * 4, {1, 2}};

// A layer with explicit attention: the scores (BSS) live before the wide activations (BS) do, so
// the peak is one or the other.
SyntheticSegment attention() {
  const Term scores{4 * 4, {1, 2}};
  const Term wide{4 * 1024, {1, 1}};
  return {{{1, {kLinear}},
           {1, {scores}},
           {1, {scores}},
           {-1, {scores}},
           {-1, {scores}},
           {1, {wide}},
           {1, {wide}},
           {-1, {wide}},
           {1, {{65536, {0, 0}}}}}};
}

void observe_at(Predictor& predictor, const SyntheticSegment& truth,
                std::initializer_list<ShapeKey> shapes) {
  for (const ShapeKey& shape : shapes) predictor.observe(kForward, shape, truth.at(shape));
}

TEST(ExactPrediction, ExtrapolatesAcrossTheCrossingOfTwoMaxima) {
  const auto predictor = make_online_predictor({});
  // Short shapes only: the quadratic term has never been the peak.
  observe_at(*predictor, attention(), {{8, 64}, {4, 100}});
  for (const ShapeKey& asked : {ShapeKey{8, 128}, ShapeKey{8, 256}, ShapeKey{16, 4096}}) {
    const auto estimate = predictor->predict(kForward, asked);
    EXPECT_EQ(estimate->peak_bytes, attention().at(asked).peak_bytes) << asked.to_string();
    EXPECT_EQ(estimate->net_bytes, attention().at(asked).net_bytes);
    EXPECT_EQ(estimate->basis, PredictionBasis::kExact);
    EXPECT_TRUE(estimate->identified);
  }
}

// What a layer behind another frees last, one behind none may free before the rest: the same bytes.
TEST(ExactPrediction, FreesInEitherOrderAreOneSegment) {
  const Term wide{4 * 96, {1, 1}};
  const Term narrow{4, {1, 1}};
  const SyntheticSegment first{{{1, {wide}},
                                {1, {{16384, {0, 0}}}},
                                {-1, {wide}},
                                {-1, {kLinear}},
                                {-1, {narrow}},
                                {-1, {wide}}}};
  SyntheticSegment second = first;
  std::ranges::rotate(second.events.begin() + 3, second.events.end() - 1, second.events.end());
  for (const int seen : {2, 3, 8}) {
    const auto predictor = make_online_predictor({});
    for (int i = 0; i < seen; ++i) {
      const ShapeKey shape{4 + i % 3, 40 + 56 * i};
      predictor->observe(kForward, shape, (i % 2 == 0 ? first : second).at(shape));
    }
    for (const ShapeKey& asked : {ShapeKey{6, 20}, ShapeKey{6, 72}, ShapeKey{2, 900}}) {
      const auto estimate = predictor->predict(kForward, asked);
      EXPECT_EQ(estimate->peak_bytes, first.at(asked).peak_bytes) << seen << asked.to_string();
      EXPECT_EQ(estimate->net_bytes, first.at(asked).net_bytes) << seen << asked.to_string();
      EXPECT_EQ(estimate->basis, PredictionBasis::kExact);
      EXPECT_TRUE(estimate->identified);
    }
  }
}

TEST(ExactPrediction, DescribesBothTermsOfTheMaximum) {
  const auto predictor = make_online_predictor({});
  observe_at(*predictor, attention(), {{8, 64}, {4, 100}});
  const auto learned = predictor->describe();
  ASSERT_EQ(learned.size(), 2U);
  EXPECT_EQ(learned[0].quantity, "net_bytes");
  EXPECT_EQ(learned[0].monomials, (std::vector<std::string>{"1", "batch*source"}));
  EXPECT_EQ(learned[0].coefficients, (std::vector<std::vector<double>>{{65536, 512 + 4096}}));
  EXPECT_EQ(learned[1].quantity, "peak_bytes");
  EXPECT_EQ(learned[1].monomials, (std::vector<std::string>{"batch*source", "batch*source^2"}));
  EXPECT_EQ(learned[1].coefficients,
            (std::vector<std::vector<double>>{{512, 32}, {512 + 2 * 4096, 0}}));
  EXPECT_EQ(learned[1].basis, PredictionBasis::kExact);
  EXPECT_EQ(learned[1].distinct_shapes, 2);
}

TEST(ExactPrediction, ReadsConstantPlusMonomial) {
  const SyntheticSegment truth{{{1, {{5056, {0, 0}}, {512, {1, 1}}}}, {1, {kLinear}}}};
  const auto predictor = make_online_predictor({});
  observe_at(*predictor, truth, {{8, 152}, {3, 120}, {5, 67}});
  const ShapeKey asked{12, 384};
  const auto estimate = predictor->predict(kForward, asked);
  EXPECT_EQ(estimate->peak_bytes, truth.at(asked).peak_bytes);
  EXPECT_TRUE(estimate->identified);
}

TEST(ExactPrediction, FlagsTwoTermsReadFromTwoShapes) {
  const SyntheticSegment truth{{{1, {{5056, {0, 0}}, {512, {1, 1}}}}}};
  const auto predictor = make_online_predictor({});
  observe_at(*predictor, truth, {{8, 152}, {3, 120}});
  const ShapeKey asked{12, 384};
  const auto estimate = predictor->predict(kForward, asked);
  EXPECT_EQ(estimate->peak_bytes, truth.at(asked).peak_bytes);
  EXPECT_FALSE(estimate->identified);
  EXPECT_GT(estimate->peak_upper_bytes, estimate->peak_bytes);
}

TEST(ExactPrediction, ReadsTheSumOfTwoLengths) {
  // A concatenation: batch * (source + target) * 512.
  const SyntheticSegment truth{{{1, {{512, {1, 1, 0}}, {512, {1, 0, 1}}}}}};
  const auto predictor = make_online_predictor({});
  for (const ShapeKey& shape : {ShapeKey{8, 33, 40}, ShapeKey{4, 71, 19}, ShapeKey{6, 50, 90}}) {
    predictor->observe(kForward, shape, truth.at(shape));
  }
  const ShapeKey asked{12, 200, 100};
  EXPECT_EQ(predictor->predict(kForward, asked)->peak_bytes, truth.at(asked).peak_bytes);
}

TEST(ExactPrediction, ReadsMasksHeldAsBits) {
  SyntheticSegment truth{{{1, {kLinear}}, {1, {{3, {1, 2}}}}}};
  const auto masks = [&](const ShapeKey& shape) {
    SegmentSample sample = truth.at(shape);
    sample.deltas[1] = (sample.deltas[1] + 7) / 8;
    sample.net_bytes = sample.peak_bytes = sample.deltas[0] + sample.deltas[1];
    return sample;
  };
  const auto predictor = make_online_predictor({});
  for (const ShapeKey& shape : {ShapeKey{8, 33}, ShapeKey{3, 71}}) {
    predictor->observe(kForward, shape, masks(shape));
  }
  const ShapeKey asked{7, 301};
  EXPECT_EQ(predictor->predict(kForward, asked)->peak_bytes, masks(asked).peak_bytes);
}

TEST(ExactPrediction, RoundsUpToTheGranularity) {
  SyntheticSegment truth{{{1, {{4 * 50, {1, 1}}}}, {1, {{6, {1, 2}}}}, {-1, {{6, {1, 2}}}}}, 512};
  const auto predictor = make_online_predictor({.granularity_bytes = 512});
  observe_at(*predictor, truth, {{8, 152}, {3, 121}});
  for (const ShapeKey& asked : {ShapeKey{8, 384}, ShapeKey{5, 67}, ShapeKey{32, 1000}}) {
    const auto estimate = predictor->predict(kForward, asked);
    EXPECT_EQ(estimate->peak_bytes, truth.at(asked).peak_bytes) << asked.to_string();
    EXPECT_EQ(estimate->net_bytes, truth.at(asked).net_bytes) << asked.to_string();
  }
}

TEST(ExactPrediction, SmallRoundedBlocksDoNotMakeItDoubtful) {
  SyntheticSegment truth{{{1, {{4 * 512, {1, 1}}}}, {1, {{8, {1, 0}}}}, {1, {{4, {0, 0}}}}}, 512};
  const auto predictor = make_online_predictor({.granularity_bytes = 512});
  observe_at(*predictor, truth, {{8, 152}, {3, 121}});
  const auto estimate = predictor->predict(kForward, {8, 200});
  EXPECT_TRUE(estimate->identified);
  EXPECT_GE(estimate->peak_upper_bytes, truth.at({8, 200}).peak_bytes);
}

TEST(ExactPrediction, FlagsABatchThatNeverVaried) {
  const SyntheticSegment truth{{{1, {kLinear}}, {1, {kQuadratic}}}};
  const auto predictor = make_online_predictor({});
  observe_at(*predictor, truth, {{8, 64}, {8, 100}, {8, 131}});
  EXPECT_TRUE(predictor->predict(kForward, {8, 512})->identified);
  const auto larger = predictor->predict(kForward, {16, 100});
  EXPECT_FALSE(larger->identified);
  EXPECT_EQ(larger->peak_bytes, truth.at({16, 100}).peak_bytes);
  EXPECT_GE(larger->peak_upper_bytes, truth.at({16, 100}).peak_bytes);
  const auto smaller = predictor->predict(kForward, {4, 100});
  EXPECT_FALSE(smaller->identified);
  EXPECT_GE(smaller->peak_upper_bytes, truth.at({8, 100}).peak_bytes);
}

TEST(ExactPrediction, AnUpperBoundDoesNotSubtractMoreThanWasHeld) {
  // Frees blocks of the layer's forward: at another batch they may be small.
  const SyntheticSegment truth{{{-1, {kLinear}}, {1, {kQuadratic}}, {-1, {kQuadratic}}}};
  const auto predictor = make_online_predictor({});
  observe_at(*predictor, truth, {{8, 64}, {8, 100}});
  const auto estimate = predictor->predict(kForward, {16, 128});
  EXPECT_GE(estimate->net_upper_bytes, -512 * 8 * 128);
  EXPECT_GE(estimate->peak_upper_bytes, truth.at({16, 128}).peak_bytes);
}

TEST(ExactPrediction, LearnsTheUsualLogAfterAnotherFirstStep) {
  // The first step allocates state, and so has more events.
  SyntheticSegment first = attention();
  first.events.push_back({1, {{1 << 20, {0, 0}}}});
  const auto predictor = make_online_predictor({});
  observe_at(*predictor, first, {{8, 64}});
  observe_at(*predictor, attention(), {{4, 100}, {6, 90}});
  const ShapeKey asked{16, 300};
  const auto estimate = predictor->predict(kForward, asked);
  EXPECT_EQ(estimate->basis, PredictionBasis::kExact);
  EXPECT_EQ(estimate->peak_bytes, attention().at(asked).peak_bytes);
  EXPECT_EQ(predictor->predict(kForward, {8, 64})->net_bytes, first.at({8, 64}).net_bytes);
}

TEST(ExactPrediction, KeepsTheLogOfBatchOneApart) {
  const SyntheticSegment single{{{1, {kLinear}}}};
  const auto predictor = make_online_predictor({});
  observe_at(*predictor, attention(), {{8, 64}, {4, 100}});
  observe_at(*predictor, single, {{1, 64}, {1, 100}});
  observe_at(*predictor, attention(), {{8, 90}});
  EXPECT_EQ(predictor->predict(kForward, {1, 333})->peak_bytes, single.at({1, 333}).peak_bytes);
  EXPECT_EQ(predictor->predict(kForward, {9, 333})->peak_bytes,
            attention().at({9, 333}).peak_bytes);
}

TEST(ExactPrediction, ASeenShapeGivesTheMostRecentSample) {
  const auto predictor = make_online_predictor({});
  observe_at(*predictor, attention(), {{8, 64}, {4, 100}});
  const SyntheticSegment other{{{1, {{12345, {0, 0}}}}}};
  predictor->observe(kForward, {8, 64}, other.at({8, 64}));
  EXPECT_EQ(predictor->predict(kForward, {8, 64})->peak_bytes, 12345);
  EXPECT_EQ(predictor->distinct_shapes(kForward), 2);
}

TEST(ExactPrediction, WhatIsKnownAlreadyDoesNotRaiseTheVersion) {
  const auto predictor = make_online_predictor({});
  observe_at(*predictor, attention(), {{8, 64}, {4, 100}});
  const std::uint64_t version = predictor->version();
  observe_at(*predictor, attention(), {{8, 64}, {4, 100}, {8, 64}});
  EXPECT_EQ(predictor->version(), version);
  observe_at(*predictor, attention(), {{2, 77}});  // new, and as predicted
  EXPECT_EQ(predictor->version(), version);
  EXPECT_EQ(predictor->distinct_shapes(kForward), 3);
  predictor->observe(kForward, {2, 78}, {{7, 9}, 16, 16, 0});
  EXPECT_GT(predictor->version(), version);
}

TEST(ExactPrediction, OneOddEventIsInterpolatedAndTheRestStaysExact) {
  // A workspace that follows no form; the block beside it does.
  const auto odd = [](const ShapeKey& shape) {
    const std::int64_t workspace = 1000 + (shape[1] * 7919) % 1013;
    const std::int64_t block = 4096 * shape[0] * shape[1];
    return SegmentSample{{workspace, block, -workspace}, block, workspace + block, 0};
  };
  const auto predictor = make_online_predictor({});
  for (const ShapeKey& shape : {ShapeKey{8, 64}, ShapeKey{4, 100}, ShapeKey{6, 91}, ShapeKey{7, 45},
                                ShapeKey{5, 77}, ShapeKey{3, 58}}) {
    predictor->observe(kForward, shape, odd(shape));
  }
  const ShapeKey asked{8, 120};
  const auto estimate = predictor->predict(kForward, asked);
  EXPECT_EQ(estimate->basis, PredictionBasis::kLeastSquares);
  EXPECT_EQ(estimate->net_bytes, odd(asked).net_bytes);
  EXPECT_NEAR(static_cast<double>(estimate->peak_bytes), static_cast<double>(odd(asked).peak_bytes),
              2000);
  EXPECT_GE(estimate->peak_upper_bytes, odd(asked).peak_bytes);
}

TEST(ExactPrediction, TwoShapesSayLittleOfASizeThatFollowsNoForm) {
  // oneDNN's scratchpad of a weight's gradient, by rows, where it uses AMX: between the two of them
  // a square fits as well as a line, and is far too much further out.
  const auto head = [](std::int64_t rows, std::int64_t workspace) {
    const std::int64_t block = 512 * rows;
    return SegmentSample{{block, workspace, -workspace}, block, block + workspace, 0};
  };
  const auto predictor = make_online_predictor({});
  predictor->observe(kForward, ShapeKey{1, 24}, head(24, 17536));
  predictor->observe(kForward, ShapeKey{1, 39}, head(39, 38784));
  const auto estimate = predictor->predict(kForward, ShapeKey{1, 97});
  const std::int64_t block = 512 * 97;
  EXPECT_FALSE(estimate->identified);
  EXPECT_EQ(estimate->peak_bytes, block + 120943);        // along the line
  EXPECT_EQ(estimate->peak_upper_bytes, block + 216143);  // along the square
  EXPECT_EQ(estimate->net_bytes, block);
}

TEST(ExactPrediction, SamplesWithoutALogNeitherHelpNorHarm) {
  const auto predictor = make_online_predictor({});
  observe_at(*predictor, attention(), {{8, 64}, {4, 100}});
  const std::uint64_t version = predictor->version();
  for (const ShapeKey& shape : {ShapeKey{8, 64}, ShapeKey{2, 50}, ShapeKey{6, 300}}) {
    predictor->observe(kForward, shape, without_log(attention().at(shape)));
  }
  EXPECT_EQ(predictor->version(), version);
  const auto estimate = predictor->predict(kForward, {16, 1024});
  EXPECT_EQ(estimate->basis, PredictionBasis::kExact);
  EXPECT_EQ(estimate->peak_bytes, attention().at({16, 1024}).peak_bytes);
}

TEST(ExactPrediction, ASegmentWithoutAllocationsIsExactlyThat) {
  const auto predictor = make_online_predictor({});
  observe_at(*predictor, {}, {{8, 64}, {4, 100}});
  const auto estimate = predictor->predict(kForward, {16, 1024});
  EXPECT_EQ(estimate->peak_bytes, 0);
  EXPECT_EQ(estimate->peak_upper_bytes, 0);
  EXPECT_EQ(estimate->basis, PredictionBasis::kExact);
}

TEST(ExactPrediction, ManyShapesStayBoundedAndExact) {
  const auto predictor = make_online_predictor({.max_samples_per_segment = 8});
  const SyntheticSegment truth = attention();
  for (std::int64_t length = 20; length < 300; ++length) {
    observe_at(*predictor, truth, {ShapeKey{2 + length % 7, length}});
  }
  EXPECT_LE(predictor->distinct_shapes(kForward), 8);
  EXPECT_EQ(predictor->predict(kForward, {32, 777})->peak_bytes, truth.at({32, 777}).peak_bytes);
}

TEST(ExactPrediction, TheOptimizerIsConstantUntilShownOtherwise) {
  const auto predictor = make_online_predictor({});
  const SyntheticSegment truth{{{1, {{1 << 20, {0, 0}}}}, {-1, {{1 << 20, {0, 0}}}}}};
  predictor->observe(kOptimizer, {8, 128}, truth.at({8, 128}));
  const auto estimate = predictor->predict(kOptimizer, {16, 512});
  EXPECT_EQ(estimate->peak_bytes, 1 << 20);
  EXPECT_EQ(estimate->peak_upper_bytes, 1 << 20);
  EXPECT_FALSE(estimate->identified);
  EXPECT_TRUE(predictor->predict(kOptimizer, {8, 128})->identified);
}

}  // namespace
}  // namespace pudica
