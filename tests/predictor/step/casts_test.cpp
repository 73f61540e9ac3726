// Forwards that find their weights cast, beside those that cast them.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "predictor/step/class_model.h"
#include "pudica/predictor.h"

namespace pudica::testing {
namespace {

constexpr std::int64_t kCasts = 40000;

// A layer's bytes for a batch of rows of a length, and its casts where it makes them.
std::int64_t held(const ShapeKey& shape, Mode mode) {
  return (mode == Mode::keep() ? 900 : mode == Mode::full() ? 100 : 500) * shape[0] * shape[1];
}

class Casts : public ::testing::Test {
 protected:
  void teach(Mode mode, bool casts_present, const std::vector<ShapeKey>& shapes,
             bool with_backward = true) {
    for (const ShapeKey& shape : shapes) {
      StepOutcome outcome;
      outcome.context.shape = shape;
      outcome.context.casts_present = casts_present;
      const std::int64_t bytes = held(shape, mode);
      std::vector<std::int64_t> forward{bytes};
      if (!casts_present) forward.insert(forward.begin(), kCasts);
      add(outcome, SegmentKind::kForward, mode, forward);
      if (with_backward) add(outcome, SegmentKind::kBackward, mode, {bytes, -2 * bytes});
      store_.observe(outcome, 0);
    }
  }
  [[nodiscard]] ModePair asked(Mode mode, bool casts_present, const ShapeKey& shape) const {
    ClassQuery query{shape, 0, false, false};
    query.casts_present = casts_present;
    const auto pair = ClassModel(store_, query).best(mode, 0);
    return pair.value_or(ModePair{});
  }
  void expect_exact(Mode mode, bool casts_present, const ShapeKey& shape) const {
    const ModePair pair = asked(mode, casts_present, shape);
    const std::int64_t bytes = held(shape, mode) + (casts_present ? 0 : kCasts);
    EXPECT_EQ(pair.forward.net_bytes, bytes) << to_string(mode);
    EXPECT_EQ(pair.forward.peak_bytes, bytes) << to_string(mode);
    EXPECT_EQ(pair.backward.peak_bytes, held(shape, mode)) << to_string(mode);
    EXPECT_TRUE(pair.fit && pair.identified) << to_string(mode);
  }

  SegmentStore store_{[] { return make_online_predictor({}); }};
  const std::vector<ShapeKey> shapes_{{2, 80}, {3, 55}, {5, 31}, {4, 120}};

  static void add(StepOutcome& outcome, SegmentKind kind, Mode mode,
                  std::vector<std::int64_t> deltas) {
    SegmentObservation item{
        SegmentKey{kind, 0, mode, 0}.with_casts(outcome.context.casts_present), 0, {}};
    item.sample.deltas = std::move(deltas);
    for (const std::int64_t delta : item.sample.deltas) {
      item.sample.net_bytes += delta;
      item.sample.peak_bytes = std::max(item.sample.peak_bytes, item.sample.net_bytes);
    }
    outcome.segments.push_back(std::move(item));
  }
};

// A forward that waits has no backward of its own: the other's is as good.
TEST_F(Casts, ForwardsAreToldApartAndBackwardsAreNot) {
  teach(Mode::keep(), false, shapes_, /*with_backward=*/false);
  teach(Mode::keep(), true, shapes_);
  for (const bool present : {false, true}) expect_exact(Mode::keep(), present, {7, 64});
  EXPECT_EQ(store_.variants(0, Mode::keep()), (std::vector<std::uint8_t>{0}));
}

// What the casts make of a forward is the same in every mode.
TEST_F(Casts, AModeSeenWithoutThemIsKnownWithThem) {
  for (const bool present : {false, true}) teach(Mode::full(), present, shapes_);
  teach(Mode::selective(0), true, shapes_);
  teach(Mode::keep(), false, shapes_);
  for (const bool present : {false, true}) {
    expect_exact(Mode::selective(0), present, {7, 64});
    expect_exact(Mode::keep(), present, {7, 64});
  }
}

TEST_F(Casts, OneShapeOfItsOwnCountsForLessThanTheOthersOfTheOtherSort) {
  for (const bool present : {false, true}) teach(Mode::keep(), present, shapes_);
  teach(Mode::selective(0), true, shapes_);
  teach(Mode::selective(0), false, {{2, 33}}, /*with_backward=*/false);
  expect_exact(Mode::selective(0), false, {7, 64});
}

// Known of one sort alone a layer is taken to be as that.
TEST_F(Casts, WhatOneSortShowsIsTakenForTheOther) {
  teach(Mode::keep(), false, shapes_);
  const ModePair pair = asked(Mode::keep(), true, {7, 64});
  EXPECT_EQ(pair.forward.net_bytes, held({7, 64}, Mode::keep()) + kCasts);
  EXPECT_TRUE(pair.fit);
}

// Backwards whose logs leave them open are told by what a forward and its backward leave: each sort
// by its own, whichever is asked first.
TEST_F(Casts, WhatIsLeftIsOfItsOwnSort) {
  for (const bool first : {false, true}) {
    SegmentStore store([] { return make_online_predictor({}); });
    std::int64_t aside = 0;  // follows no form
    for (const ShapeKey& shape : shapes_) {
      aside = 700000 - aside;
      for (const bool present : {false, true}) {
        StepOutcome outcome;
        outcome.context.shape = shape;
        outcome.context.casts_present = present;
        const std::int64_t bytes = held(shape, Mode::keep());
        add(outcome, SegmentKind::kForward, Mode::keep(),
            present ? std::vector{bytes} : std::vector{kCasts, bytes});
        add(outcome, SegmentKind::kBackward, Mode::keep(), {aside + 64, -aside - 64, -bytes});
        store.observe(outcome, 0);
      }
    }
    for (const bool present : {first, !first}) {
      ClassQuery query{{7, 64}, 0, false, false};
      query.casts_present = present;
      const auto pair = ClassModel(store, query).exact(Mode::keep(), 0);
      EXPECT_EQ(pair->backward.net_bytes, -held({7, 64}, Mode::keep())) << first << present;
    }
  }
}

TEST_F(Casts, AGapIsEmptyInTheSortOfStepInWhichItIs) {
  const SegmentKey gap{SegmentKind::kGap, 1, Mode::keep(), 0};
  const auto step = [&](std::int64_t length, bool casts_present) {
    StepOutcome outcome;
    outcome.context.shape = {2, length};
    outcome.context.casts_present = casts_present;
    for (const std::int32_t layer : {0, 1}) {
      const SegmentKey forward{SegmentKind::kForward, 0, Mode::keep(), 0};
      outcome.segments.push_back({forward.with_casts(casts_present), layer, {{}, 10, 10, 0}});
    }
    if (!casts_present) outcome.segments.push_back({gap, 1, {{kCasts}, kCasts, kCasts, 0}});
    store_.observe(outcome, 0);
  };
  for (const std::int64_t length : {8, 24, 31}) {
    step(length, false);
    step(length, true);
  }
  EXPECT_EQ(store_.predict(store_.as_known(gap, false), {2, 50})->estimate.net_bytes, kCasts);
  EXPECT_EQ(store_.predict(store_.as_known(gap, true), {2, 50})->estimate.net_bytes, 0);
  step(40, true);
  const auto learned = store_.predictor().describe();
  const auto with = std::ranges::find(learned, gap.with_casts(true), &LearnedQuantity::segment);
  ASSERT_NE(with, learned.end());
  EXPECT_EQ(with->samples, 4) << "one of each such step";
}

}  // namespace
}  // namespace pudica::testing
