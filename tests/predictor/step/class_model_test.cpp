// Which variant of a class is believed, where the calls of one leave its sizes open.
#include "predictor/step/class_model.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "predictor/step/layer_model.h"
#include "pudica/predictor.h"

namespace pudica::testing {
namespace {

constexpr std::int64_t kGradients = 59648;

// A decoder's: bytes for rows of two lengths.
std::int64_t held(const ShapeKey& shape) {
  return 256 * shape[0] * shape[1] + 2744 * shape[0] * shape[2];
}

// `aside`: allocated and freed by the way, so that logs are not alike.
SegmentObservation call(SegmentKind kind, Mode mode, std::uint8_t variant,
                        std::vector<std::int64_t> deltas, std::int64_t aside) {
  if (aside > 0) deltas.insert(deltas.begin(), {aside, -aside});
  SegmentObservation item{{kind, 0, mode, variant}, 0, {}};
  item.sample.deltas = std::move(deltas);
  for (const std::int64_t delta : item.sample.deltas) {
    item.sample.net_bytes += delta;
    item.sample.peak_bytes = std::max(item.sample.peak_bytes, item.sample.net_bytes);
  }
  return item;
}

void teach(SegmentStore& store, const ShapeKey& shape, Mode mode, std::uint8_t variant,
           std::int64_t aside) {
  const std::int64_t first = 256 * shape[0] * shape[1];
  const std::int64_t second = held(shape) - first;
  const bool kept = mode == Mode::keep();
  const std::int64_t output = 128 * shape[0] * shape[2];
  StepOutcome outcome;
  outcome.context.shape = shape;
  outcome.segments = {
      call(SegmentKind::kForward, mode, variant,
           kept ? std::vector{first, second} : std::vector{first, second, -first, output - second},
           aside),
      call(SegmentKind::kBackward, mode, variant,
           kept ? std::vector{kGradients, -first, -second} : std::vector{kGradients, -output}, 0)};
  store.observe(outcome, 0);
}

SegmentStore empty_store() {
  return SegmentStore([] { return make_online_predictor({}); });
}

const std::vector<ShapeKey> kShapes{{2, 89, 67}, {4, 55, 71}, {3, 77, 40}, {6, 41, 47}};
const ShapeKey kAsked{7, 33, 46};

// Two calls of the last layer with logs that differ: a line through two sums, 400 KB off and
// negative in a length. Ordinary layers are known to the byte.
TEST(ClassModel, AKnownVariantStandsInForALineThroughTwoSums) {
  SegmentStore store = empty_store();
  for (const ShapeKey& shape : kShapes) teach(store, shape, Mode::keep(), 0, 0);
  teach(store, kShapes[0], Mode::keep(), SegmentKey::kLastOfClass, 536);
  teach(store, kShapes[2], Mode::keep(), SegmentKey::kLastOfClass, 0);
  const ClassQuery query{kAsked, 0, false, false};
  const ClassModel classes(store, query);
  const auto own = classes.exact(Mode::keep(), SegmentKey::kLastOfClass);
  ASSERT_TRUE(own && own->fit && !own->identified);
  ASSERT_LT(own->forward.net_bytes, held(kAsked) * 2 / 3);
  const auto best = classes.best(Mode::keep(), SegmentKey::kLastOfClass);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->variant, 0);
  EXPECT_EQ(best->forward.net_bytes, held(kAsked));
  EXPECT_EQ(classes.residue(SegmentKey::kLastOfClass), kGradients);
}

// Two calls of the last layer, both of one batch size, leave open whether bytes grow with it. What
// its siblings are known to need is better; else the mode would count as unknown.
TEST(ClassModel, AKnownVariantStandsInForTwoCallsThatLeaveADirectionOpen) {
  SegmentStore store = empty_store();
  const Mode mode = Mode::selective(0);
  for (const ShapeKey& shape : kShapes) teach(store, shape, mode, 0, 0);
  for (const ShapeKey& shape : {ShapeKey{4, 55, 71}, ShapeKey{4, 77, 40}}) {
    teach(store, shape, mode, SegmentKey::kLastOfClass, 0);
  }
  const ClassQuery query{kAsked, 0, false, false};
  const ClassModel classes(store, query);
  const auto own = classes.exact(mode, SegmentKey::kLastOfClass);
  ASSERT_TRUE(own && own->fit && !own->identified);
  const auto best = classes.best(mode, SegmentKey::kLastOfClass);
  ASSERT_TRUE(best);
  EXPECT_TRUE(best->identified);
  EXPECT_EQ(best->variant, 0);
}

// A kept layer that leaves `left` more than its siblings, and whose backward works in tiles: their
// size follows no form.
void teach_tiled(SegmentStore& store, const ShapeKey& shape, std::uint8_t variant,
                 std::int64_t left) {
  const std::int64_t tiles = 8 * shape[1] * std::min<std::int64_t>(shape[2], 48);
  StepOutcome outcome;
  outcome.context.shape = shape;
  outcome.segments = {call(SegmentKind::kForward, Mode::keep(), variant, {held(shape)}, 0),
                      call(SegmentKind::kBackward, Mode::keep(), variant,
                           {kGradients, tiles, -tiles, left - held(shape)}, 0)};
  store.observe(outcome, 0);
}

// Backward sizes that follow no form; what the layer leaves is `left` beside its gradients.
void teach_formless(SegmentStore& store, const ShapeKey& shape, std::int64_t left) {
  const std::int64_t odd = 4096 * (shape[0] * shape[1] * shape[2] % 97 + 1);
  StepOutcome outcome;
  outcome.context.shape = shape;
  outcome.segments = {
      call(SegmentKind::kForward, Mode::keep(), 0, {held(shape)}, 0),
      call(SegmentKind::kBackward, Mode::keep(), 0,
           {kGradients, 8 * odd, left - held(shape) - 3 * odd, -5 * odd}, odd % 8192)};
  store.observe(outcome, 0);
}

// Four logs of two kinds tell no form of the backward's sizes; that of the forward does, and what
// is left in the end is the same wherever it was measured.
TEST(ClassModel, WhatIsLeftEverywhereTellsWhatTheBackwardLeaves) {
  SegmentStore store = empty_store();
  const ClassQuery query{kAsked, 0, false, false};
  const ClassModel classes(store, query);
  teach_formless(store, kShapes[0], 0);
  ASSERT_FALSE(classes.exact(Mode::keep(), 0)->identified);
  for (const ShapeKey& shape : kShapes) teach_formless(store, shape, 0);
  const auto own = classes.exact(Mode::keep(), 0);
  ASSERT_TRUE(own && own->fit && !own->identified);
  EXPECT_EQ(own->forward.net_bytes, held(kAsked));
  EXPECT_EQ(own->remaining_bytes(), kGradients);
  EXPECT_EQ(own->backward.net_upper_bytes, own->backward.net_bytes);
  EXPECT_GE(own->backward.peak_upper_bytes, own->backward.peak_bytes);
  EXPECT_EQ(classes.residue(0), kGradients);
}

// Sums that are alike at shapes of one batch size say nothing of another batch.
TEST(ClassModel, WhatIsLeftIsNotKnownInADirectionThatWasNotSeen) {
  SegmentStore store = empty_store();
  const std::vector<ShapeKey> shapes{{4, 89, 67}, {4, 55, 70}, {4, 77, 40}, {4, 41, 47}};
  for (const ShapeKey& shape : shapes) teach_formless(store, shape, 0);
  for (const ShapeKey& shape : kShapes) {  // their backwards could not be told
    StepOutcome outcome;
    outcome.context.shape = shape;
    outcome.segments = {call(SegmentKind::kForward, Mode::keep(), 0, {held(shape)}, 0)};
    store.observe(outcome, 0);
  }
  const auto open = [&](const ShapeKey& asked) {
    const ClassQuery query{asked, 0, false, false};
    const ClassModel classes(store, query);
    const auto own = classes.exact(Mode::keep(), 0);
    EXPECT_EQ(own->forward.net_upper_bytes, held(asked));
    return own->backward.net_upper_bytes - own->backward.net_bytes;
  };
  EXPECT_EQ(open({4, 33, 46}), 0);
  EXPECT_GT(open({7, 33, 46}), 0);
}

TEST(ClassModel, WhatIsLeftAndHangsOnTheShapeTellsNothing) {
  SegmentStore store = empty_store();
  const ClassQuery query{kAsked, 0, false, false};
  const ClassModel classes(store, query);
  for (const ShapeKey& shape : kShapes) teach_formless(store, shape, 128 * shape[0] * shape[1]);
  const auto own = classes.exact(Mode::keep(), 0);
  ASSERT_TRUE(own && own->fit && !own->identified);
  EXPECT_NE(own->remaining_bytes(), kGradients);
  EXPECT_GT(own->backward.net_upper_bytes, own->backward.net_bytes);
}

// The last layer of a decoder is the first to make the gradient of what the encoder made: what its
// siblings leave is another thing, in whatever mode that was seen.
TEST(ClassModel, NoVariantStandsInForOneThatWasSeenToLeaveMore) {
  const auto left = [](const ShapeKey& shape) { return 128 * shape[0] * shape[1]; };
  const std::uint8_t last = SegmentKey::kLastOfClass;
  for (const bool recomputed : {false, true}) {
    SegmentStore store = empty_store();
    for (const ShapeKey& shape : kShapes) {
      teach(store, shape, Mode::keep(), 0, 0);
      if (recomputed) teach(store, shape, Mode::full(), 0, 0);
      teach_tiled(store, shape, last, left(shape));
    }
    const ClassQuery query{kAsked, 0, false, false};
    const ClassModel classes(store, query);
    const auto own = classes.exact(Mode::keep(), last);
    ASSERT_TRUE(own && own->fit && !own->identified);
    EXPECT_EQ(classes.best(Mode::keep(), last)->variant, last);
    EXPECT_EQ(classes.residue(last), kGradients + left(kAsked));
    EXPECT_EQ(classes.residue(0), kGradients);
  }
}

// Of a shape at which the layer was not seen it contradicts nobody: what it left is not known
// there.
TEST(ClassModel, WhatIsOnlyScaledContradictsNoOther) {
  const std::uint8_t last = SegmentKey::kLastOfClass;
  SegmentStore store = empty_store();
  for (const ShapeKey& shape : kShapes) {
    teach(store, shape, Mode::keep(), 0, 0);
    teach(store, shape, Mode::full(), 0, 0);
    teach_tiled(store, shape, last, 0);
  }
  teach(store, {1, 9, 8}, Mode::full(), last, 0);
  const ClassQuery query{kAsked, 0, false, false};
  const ClassModel classes(store, query);
  ASSERT_FALSE(classes.exact(Mode::keep(), last)->identified);
  ASSERT_FALSE(classes.exact(Mode::full(), last)->fit);
  EXPECT_EQ(classes.best(Mode::keep(), last)->variant, 0);
}

// With no other variant its bound holds, and what the layer leaves is read off recomputed calls.
TEST(ClassModel, WhatALayerLeavesIsNotADifferenceOfTwoLines) {
  SegmentStore store = empty_store();
  teach(store, kShapes[0], Mode::keep(), 0, 536);
  teach(store, kShapes[2], Mode::keep(), 0, 0);
  for (const ShapeKey& shape : kShapes) teach(store, shape, Mode::full(), 0, 0);
  const ClassQuery query{kAsked, 0, false, false};
  const ClassModel classes(store, query);
  const auto keep = classes.best(Mode::keep(), 0);
  ASSERT_TRUE(keep && !keep->identified);
  ASSERT_LT(keep->remaining_bytes(), 0);
  EXPECT_GE(keep->forward.net_upper_bytes, held(kAsked));
  EXPECT_EQ(classes.residue(0), kGradients);
}

// What two lines leave above that is no memory that the head frees: every plan would be told to
// hold as much before it.
TEST(ClassModel, AKeptLayerReleasesNothing) {
  SegmentStore store = empty_store();
  teach(store, kShapes[0], Mode::keep(), 0, 0);
  teach(store, kShapes[2], Mode::keep(), 0, 536);
  for (const ShapeKey& shape : kShapes) teach(store, shape, Mode::full(), 0, 0);
  CostsRequest request;
  request.shape = {2, 20, 20};
  const ClassQuery query{request.shape, 0, false, false};
  ASSERT_GT(ClassModel(store, query).best(Mode::keep(), 0)->remaining_bytes(), 2 * kGradients);
  StepStructure structure;
  structure.layers.push_back({0, 0});
  const auto layer = build_layer_model(store, structure, request, structure.layers[0]);
  ASSERT_TRUE(layer && layer->point.modes.size() == 2);
  EXPECT_EQ(layer->point.residue_bytes, kGradients);
  EXPECT_EQ(layer->point.modes[0].released_bytes, 0);
}

// Two logs of a backward that follow no form, and more forwards (layers were revoked): what the
// layer left is measured all the same.
TEST(ClassModel, WhatIsLeftBehindTwoLinesIsWhatWasMeasured) {
  SegmentStore store = empty_store();
  for (const ShapeKey& shape : kShapes) {
    StepOutcome outcome;
    outcome.context.shape = shape;
    outcome.segments = {call(SegmentKind::kForward, Mode::keep(), 0, {held(shape)}, 0)};
    store.observe(outcome, 0);
  }
  teach_formless(store, kShapes[0], 0);
  teach_formless(store, kShapes[2], 0);
  const ClassQuery query{kAsked, 0, false, false};
  const ClassModel classes(store, query);
  const auto own = classes.exact(Mode::keep(), 0);
  ASSERT_TRUE(own && own->fit && !own->identified);
  EXPECT_EQ(own->remaining_bytes(), kGradients);
  EXPECT_GE(own->backward.net_upper_bytes, own->backward.net_bytes);
}

TEST(LeftTogether, FollowsTheForwardWhereItRisesAndNoFaster) {
  constexpr std::int64_t kNoticeable = 5;
  const auto behind = [](std::initializer_list<std::pair<std::int64_t, std::int64_t>> calls,
                         std::int64_t forward) {
    LeftTogether left;
    std::int64_t length = 8;
    for (const auto& [net, bytes] : calls) left.add({4, ++length}, net, bytes);
    return left.behind(forward, kNoticeable);
  };
  EXPECT_EQ(behind({{100, 10}}, 200), std::nullopt);
  EXPECT_EQ(behind({{300, 30}, {100, 10}}, 200), 20);
  EXPECT_EQ(behind({{100, 10}, {300, 30}}, 500), 50);
  EXPECT_EQ(behind({{100, 30}, {300, 10}}, 500), 30) << "it falls: the most";
  EXPECT_EQ(behind({{100, 10}, {110, 100}}, 210), 200) << "a byte a byte";
  EXPECT_EQ(behind({{100, 30}, {100, 10}}, 500), 30) << "forwards that left the same";
  EXPECT_EQ(behind({{100, 10}, {200, 24}, {300, 30}}, 500), 50) << "near the line";
  EXPECT_EQ(behind({{100, 10}, {200, 26}, {300, 30}}, 500), std::nullopt);
}

// Near the floor: the first layer is kept in every step, and revoked before its backward, the last
// one is recomputed.
TEST(ClassModel, WhatIsKeptAndWhatIsRecomputedMayBeTwoVariants) {
  SegmentStore store = empty_store();
  const std::uint8_t last = SegmentKey::kLastOfClass;
  for (const ShapeKey& shape : kShapes) {
    teach(store, shape, Mode::full(), last, 0);
    StepOutcome outcome;
    outcome.context.shape = shape;
    outcome.segments = {call(SegmentKind::kForward, Mode::keep(), 0, {held(shape)}, 0),
                        call(SegmentKind::kRecompute, Mode::full(), 0, {held(shape) / 2}, 0)};
    store.observe(outcome, 0);
  }
  teach(store, kShapes[0], Mode::full(), 0, 0);
  teach(store, kShapes[0], Mode::keep(), last, 0);
  const ClassQuery waits{kAsked, 0, false, false};
  EXPECT_FALSE(ClassModel(store, waits).best(Mode::keep(), 0)->fit);
  const ClassQuery query{kAsked, 0, false, true};
  const ClassModel classes(store, query);
  for (const std::uint8_t variant : {std::uint8_t{0}, last}) {
    const auto keep = classes.best(Mode::keep(), variant);
    ASSERT_TRUE(keep);
    EXPECT_TRUE(keep->fit);
    EXPECT_EQ(keep->forward.net_bytes, held(kAsked));
    EXPECT_EQ(keep->remaining_bytes(), kGradients);
    EXPECT_EQ(classes.residue(variant), kGradients);
  }
}

// Under autocast a recomputed layer leaves the casts of its weights as well, until the head
// releases them: what kept calls say of what they leave stands, though their backward's peak is
// open.
TEST(ClassModel, WhatKeptCallsLeaveIsNotReadOffRecomputedOnes) {
  SegmentStore store = empty_store();
  constexpr std::int64_t kCasts = 300000;
  const auto tiled = [](const ShapeKey& shape) { return (shape[1] + 127) / 128 * 128 * 4096; };
  const auto ran = [&](const ShapeKey& shape, Mode mode) {
    const bool kept = mode == Mode::keep();
    const std::int64_t first = 256 * shape[0] * shape[1];
    const std::int64_t second = held(shape) - first;
    StepOutcome outcome;
    outcome.context.shape = shape;
    outcome.segments = {call(SegmentKind::kForward, mode, 0,
                             kept ? std::vector{first, second, kCasts} : std::vector{kCasts}, 0),
                        call(SegmentKind::kBackward, mode, 0,
                             kept ? std::vector{kGradients, -first, -second, -kCasts}
                                  : std::vector{first, second, kGradients, -first, -second},
                             tiled(shape))};
    if (!kept) {
      outcome.segments.push_back(call(SegmentKind::kRecompute, mode, 0, {first, second}, 0));
    }
    store.observe(outcome, 0);
  };
  for (const ShapeKey& shape : kShapes) ran(shape, Mode::full());
  for (const ShapeKey& shape : {ShapeKey{8, 100, 60}, ShapeKey{6, 210, 90}}) {
    ran(shape, Mode::keep());
  }
  const ClassQuery query{{7, 150, 71}, 0, false, false};
  const ClassModel classes(store, query);
  const auto keep = classes.exact(Mode::keep(), 0);
  ASSERT_TRUE(keep && keep->fit);
  EXPECT_EQ(keep->remaining_bytes(), kGradients);
  EXPECT_EQ(classes.residue(0), kGradients);
}

// Read off recomputed calls: what the head freed of those is none of it, what it frees of a kept
// one is.
TEST(ClassModel, AKeptBackwardReadOffRecomputedCallsLeavesWhatTheHeadFreesOfItsOwn) {
  SegmentStore store = empty_store();
  constexpr std::int64_t kCasts = 3000;
  constexpr std::int64_t kBiases = 200;
  for (const ShapeKey& shape : kShapes) {
    StepOutcome outcome;
    outcome.context.shape = shape;
    outcome.segments = {
        call(SegmentKind::kForward, Mode::full(), 0, {kCasts}, 0),
        call(SegmentKind::kBackward, Mode::full(), 0, {held(shape), kGradients, -held(shape)}, 0),
        call(SegmentKind::kRecompute, Mode::full(), 0, {held(shape)}, 0),
        call(SegmentKind::kForward, Mode::keep(), 0, {kBiases, held(shape)}, 0)};
    outcome.segments[0].released_bytes = kCasts;
    outcome.segments[3].released_bytes = kBiases;
    store.observe(outcome, 0);
  }
  const ClassQuery query{kAsked, 0, false, false};
  const ClassModel classes(store, query);
  const auto keep = classes.best(Mode::keep(), 0);
  ASSERT_TRUE(keep && keep->fit);
  EXPECT_EQ(keep->remaining_bytes(), kGradients + kBiases);
  EXPECT_EQ(classes.released(Mode::keep(), *keep, kGradients), kBiases);
  EXPECT_EQ(classes.residue(0), kGradients);
}

// What a mode released where it was seen says nothing of another shape.
TEST(ClassModel, NothingIsReleasedByAModeThatIsNotKnownThere) {
  SegmentStore store = empty_store();
  const std::uint8_t last = SegmentKey::kLastOfClass;
  constexpr std::int64_t kCasts = 300000;
  const ShapeKey once{8, 64, 64};
  const ShapeKey asked{8, 48, 48};
  const auto ran = [&](const ShapeKey& shape, Mode mode, std::uint8_t variant) {
    const std::int64_t left = mode == Mode::keep() ? held(shape) : kCasts;
    const std::int64_t behind = mode == Mode::keep() ? kGradients - left : kGradients;
    StepOutcome outcome;
    outcome.context.shape = shape;
    outcome.segments = {call(SegmentKind::kForward, mode, variant, {left}, 0),
                        call(SegmentKind::kBackward, mode, variant, {behind}, 0)};
    store.observe(outcome, 0);
  };
  for (const Mode mode : {Mode::keep(), Mode::full()}) {
    ran(once, mode, 0);
    ran(once, mode, last);
    ran(asked, mode, 0);
  }
  const ClassQuery query{asked, 0, false, false};
  EXPECT_EQ(ClassModel(store, query).residue(0), kGradients);
  ran(once, Mode::selective(1), 0);
  const auto released_at = [&](const ShapeKey& shape) {
    const ClassQuery there{shape, 0, false, false};
    const ClassModel model(store, there);
    return model.released(Mode::selective(1), *model.best(Mode::selective(1), 0), kGradients);
  };
  EXPECT_EQ(released_at(once), kCasts);
}

}  // namespace
}  // namespace pudica::testing
