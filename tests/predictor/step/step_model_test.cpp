// The costs of a step put together from a fake predictor that knows exactly what it was told.
#include "predictor/step/step_model.h"

#include <gtest/gtest.h>

#include "predictor/step/class_model.h"
#include "pudica/peak_model.h"
#include "support/fake_predictor.h"
#include "support/synthetic_model.h"

namespace pudica::testing {
namespace {

const ShapeKey kShape{4, 64};

SegmentStore fake_store() {
  return SegmentStore([] { return std::make_unique<FakePredictor>(); });
}

SegmentObservation segment(SegmentKey key, std::int64_t net, std::int64_t peak,
                           double seconds = 1e-3) {
  return {key, 0, {{}, net, peak, seconds}};
}

SegmentKey key_of(SegmentKind kind, Mode mode = Mode::keep(), std::uint8_t variant = 0) {
  return {kind, 0, mode, variant};
}

// One class: kept 900, its gradients 50, recomputed input 100, casts of 7 until the head.
std::vector<SegmentObservation> one_class() {
  return {segment(key_of(SegmentKind::kForward), 900, 950),
          segment(key_of(SegmentKind::kBackward), -850, 60),
          segment(key_of(SegmentKind::kForward, Mode::full()), 107, 960),
          segment(key_of(SegmentKind::kBackward, Mode::full()), -50, 870),
          segment(key_of(SegmentKind::kRecompute, Mode::full()), 800, 820, 2e-3),
          segment(key_of(SegmentKind::kHead), 13, 40)};
}

void teach(SegmentStore& store, std::vector<SegmentObservation> segments,
           const ShapeKey& shape = kShape) {
  StepOutcome outcome;
  outcome.context.shape = shape;
  outcome.segments = std::move(segments);
  store.observe(outcome, 0);
  store.settle({shape, Bytes(0), Bytes(0), false});
}

StepStructure layers_of(std::vector<std::uint8_t> variants) {
  StepStructure out;
  for (const std::uint8_t variant : variants) out.layers.push_back({0, variant});
  return out;
}

CostsRequest request_at(const ShapeKey& shape) {
  CostsRequest request;
  request.shape = shape;
  return request;
}

TEST(StepModel, PutsResidueReleasedAndSecondsTogether) {
  SegmentStore store = fake_store();
  teach(store, one_class());
  const auto model = build_step_model(store, layers_of({0, 0}), request_at(kShape));
  ASSERT_TRUE(model.has_value());
  EXPECT_TRUE(model->fit);
  EXPECT_TRUE(model->identified);
  const LayerCosts& layer = model->point.layers[1];
  EXPECT_EQ(layer.residue_bytes, 50);
  ASSERT_EQ(layer.modes.size(), 2u);
  EXPECT_EQ(layer.modes[0].mode, Mode::keep());
  EXPECT_EQ(layer.modes[0].released_bytes, 0);
  EXPECT_EQ(layer.modes[1].released_bytes, 7);
  EXPECT_EQ(layer.modes[1].backward_peak_bytes, 870);
  EXPECT_DOUBLE_EQ(layer.modes[1].extra_seconds, 2e-3);
  EXPECT_EQ(model->point.head_net_bytes, 13) << "without what layers released in it";
}

TEST(StepModel, NoModeIsDearerThanOneThatDoesMoreAgain) {
  SegmentStore store = fake_store();
  auto segments = one_class();
  const std::vector<double> seconds = {1e-3, 3e-3, 5e-4};  // of selective:0, 1 and 2; full: 2e-3
  for (std::uint16_t k = 0; k < 3; ++k) {
    const Mode mode = Mode::selective(k);
    segments.push_back(segment(key_of(SegmentKind::kForward, mode), 700 - 100 * k, 950));
    segments.push_back(segment(key_of(SegmentKind::kBackward, mode), -650 + 100 * k, 60));
    segments.push_back(segment(key_of(SegmentKind::kRecompute, mode), 0, 0, seconds[k]));
  }
  teach(store, segments);
  const auto model = build_step_model(store, layers_of({0}), request_at(kShape));
  ASSERT_TRUE(model.has_value());
  const auto& modes = model->point.layers[0].modes;
  ASSERT_EQ(modes.size(), 5U);
  EXPECT_DOUBLE_EQ(modes[1].extra_seconds, 5e-4);
  EXPECT_DOUBLE_EQ(modes[2].extra_seconds, 5e-4);
  EXPECT_DOUBLE_EQ(modes[3].extra_seconds, 5e-4);
  EXPECT_DOUBLE_EQ(modes[4].extra_seconds, 2e-3);

  store.observe_times(kShape, {}, {{0, Mode::selective(2), 3e-3}, {7, Mode::full(), 1.0}});
  const auto again = build_step_model(store, layers_of({0}), request_at(kShape));
  EXPECT_DOUBLE_EQ(again->point.layers[0].modes[1].extra_seconds, 1e-3) << "measured anew";
  EXPECT_DOUBLE_EQ(again->point.layers[0].modes[2].extra_seconds, 2e-3) << "full takes no more";
}

TEST(StepModel, MatchesTheTruthOfTheSyntheticModel) {
  for (const bool gradients : {false, true}) {
    SyntheticSpec spec;
    spec.cast_bytes = 12345;
    spec.heads = 2;
    SyntheticModel truth(spec);
    SegmentStore store = fake_store();
    Plan plan;
    plan.modes.assign(8, Mode::keep());
    plan.modes[0] = plan.modes[7] = Mode::full();
    StepContext context = truth.context(kShape, Bytes(0));
    context.gradients_present = gradients;
    for (int i = 0; i < 2; ++i) {
      // The second time the last layer is kept, so that both variants are known in both modes.
      if (i == 1) plan.modes[7] = Mode::keep();
      const auto outcome = truth.run(context, {std::make_shared<const Plan>(plan), true});
      store.observe(outcome, 0);
    }
    CostsRequest request = request_at(kShape);
    request.gradients_present = gradients;
    const auto model = build_step_model(store, truth.structure(), request);
    ASSERT_TRUE(model.has_value());
    const StepCosts wanted = truth.true_costs(kShape, gradients);
    for (std::uint32_t bits = 0; bits < 256; ++bits) {
      std::vector<std::uint8_t> choice;
      for (int i = 0; i < 8; ++i) choice.push_back((bits >> i) & 1U);
      ASSERT_EQ(step_peak_bytes(model->point, choice), step_peak_bytes(wanted, choice)) << bits;
    }
  }
}

TEST(StepModel, NamesTheModeThatIsUnknown) {
  for (const Mode missing : {Mode::keep(), Mode::full()}) {
    SegmentStore store = fake_store();
    auto segments = one_class();
    std::erase_if(segments, [missing](const SegmentObservation& item) {
      return item.key.kind == SegmentKind::kForward && item.key.mode == missing;
    });
    teach(store, segments);
    CostsRequest request = request_at(kShape);
    const auto model = build_step_model(store, layers_of({0}), request);
    ASSERT_FALSE(model.has_value());
    EXPECT_EQ(model.error().code, ErrorCode::kUnavailable);
    EXPECT_NE(model.error().message.find("forward/0/" + to_string(missing)), std::string::npos)
        << model.error().message;
    request.lenient = true;
    const auto rest = build_step_model(store, layers_of({0}), request);
    ASSERT_TRUE(rest.has_value());
    EXPECT_EQ(rest->point.layers[0].modes.size(), 1u);
  }
}

TEST(StepModel, NamesAMissingHead) {
  SegmentStore store = fake_store();
  auto segments = one_class();
  segments.pop_back();
  teach(store, segments);
  const auto model = build_step_model(store, layers_of({0}), request_at(kShape));
  ASSERT_FALSE(model.has_value());
  EXPECT_NE(model.error().message.find("head"), std::string::npos);
}

TEST(StepModel, AnotherVariantStandsInWithItsResidueSetRight) {
  SegmentStore store = fake_store();
  auto segments = one_class();
  const std::uint8_t last = SegmentKey::kLastOfClass;
  segments.push_back(segment(key_of(SegmentKind::kForward, Mode::keep(), last), 900, 950));
  segments.push_back(segment(key_of(SegmentKind::kBackward, Mode::keep(), last), -820, 95));
  teach(store, segments);
  const auto model = build_step_model(store, layers_of({0, last}), request_at(kShape));
  ASSERT_TRUE(model.has_value());
  const LayerCosts& layer = model->point.layers[1];
  EXPECT_EQ(layer.residue_bytes, 80);
  EXPECT_EQ(layer.modes[0].backward_peak_bytes, 95);
  EXPECT_EQ(layer.modes[1].released_bytes, 7);
  EXPECT_EQ(layer.modes[1].backward_peak_bytes, 870 + 30);
}

TEST(StepModel, ABackwardOfKeepIsDerivedFromTheRecompute) {
  SegmentStore store = fake_store();
  auto segments = one_class();
  segments.erase(segments.begin() + 1);
  teach(store, segments);
  const auto model = build_step_model(store, layers_of({0}), request_at(kShape));
  ASSERT_TRUE(model.has_value());
  // 7 of what a recomputed call leaves may be an output that a kept one holds itself.
  EXPECT_EQ(model->point.layers[0].modes[0].backward_peak_bytes, 870 - 800 + 7);
  EXPECT_EQ(model->point.layers[0].residue_bytes, 107 - 50);
}

// As an activation's: run again it is part of what the recompute allocates, kept it is there when
// the backward begins, and counts as the next layer's until then.
TEST(StepModel, AnOutputThatALayerHoldsItselfIsNotTakenOffTwice) {
  SegmentStore store = fake_store();
  teach(store, {segment(key_of(SegmentKind::kForward), 900, 950),
                segment(key_of(SegmentKind::kForward, Mode::full()), 100, 960),
                segment(key_of(SegmentKind::kBackward, Mode::full()), -50, 970),
                segment(key_of(SegmentKind::kRecompute, Mode::full()), 900, 920, 2e-3),
                segment(key_of(SegmentKind::kHead), 13, 40)});
  const auto model = build_step_model(store, layers_of({0}), request_at(kShape));
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->point.layers[0].modes[0].backward_peak_bytes, 970 - (900 - 100));
}

// A layer behind an embedding of its own, as a decoder's first.
TEST(StepModel, TheBackwardOfAGapIsItsLayers) {
  SegmentStore store = fake_store();
  auto segments = one_class();
  segments.push_back(segment({SegmentKind::kEpilogue, 1, Mode::keep(), 0}, 30, 400));
  teach(store, segments);
  const auto model = build_step_model(store, layers_of({0, 0, 0}), request_at(kShape));
  ASSERT_TRUE(model.has_value());
  const auto& layers = model->point.layers;
  EXPECT_EQ(layers[0].residue_bytes, 50);
  EXPECT_EQ(layers[1].residue_bytes, 50 + 30);
  EXPECT_EQ(layers[2].residue_bytes, 50);
  EXPECT_EQ(layers[1].modes[0].backward_peak_bytes, 60) << "900 - 50 are free by then";
  EXPECT_EQ(layers[1].modes[1].backward_peak_bytes, 870);
  auto high = one_class();
  high.push_back(segment({SegmentKind::kEpilogue, 1, Mode::keep(), 0}, 30, 1000));
  SegmentStore other = fake_store();
  teach(other, high);
  const auto higher = build_step_model(other, layers_of({0, 0, 0}), request_at(kShape));
  EXPECT_EQ(higher->point.layers[1].modes[0].backward_peak_bytes, 1000 - 900 + 50);
  EXPECT_EQ(higher->point.layers[1].modes[1].backward_peak_bytes, 1000 - (107 - 7) + 50);
}

// Under accumulation near the floor hardly a layer is kept: what it changes that gradients are
// there is read off `full`, and not off one kept call of another shape.
TEST(StepModel, WhatGradientsChangeIsTheSameInEveryMode) {
  SegmentStore store = fake_store();
  const std::uint8_t present = SegmentKey::kGradientsPresent;
  for (const ShapeKey& shape : {ShapeKey{4, 32}, ShapeKey{4, 48}}) {
    auto segments = one_class();
    const auto with = [&](Mode mode, std::int64_t net, std::int64_t peak) {
      segments.push_back(segment(key_of(SegmentKind::kBackward, mode, present), net, peak));
    };
    with(Mode::full(), -50 - 50, 870 - 20);
    if (shape == ShapeKey{4, 32}) with(Mode::keep(), -400, 60);  // half of what it should be
    teach(store, segments, shape);
  }
  CostsRequest request = request_at({4, 48});
  request.gradients_present = true;
  const auto model = build_step_model(store, layers_of({0}), request);
  ASSERT_TRUE(model.has_value());
  const LayerCosts& layer = model->point.layers[0];
  EXPECT_EQ(layer.residue_bytes, 0) << "no gradient is made";
  EXPECT_EQ(layer.modes[0].backward_peak_bytes, 60 - 20);
  EXPECT_EQ(layer.modes[1].backward_peak_bytes, 870 - 20);
  EXPECT_EQ(layer.modes[1].released_bytes, 7);
}

// Kept calls that are revoked time and again are measured once, at one shape.
TEST(StepModel, AskedToItReadsKeptCallsOffRecomputedOnes) {
  SegmentStore store = fake_store();
  for (const ShapeKey& shape : {ShapeKey{4, 32}, ShapeKey{4, 48}}) {
    auto segments = one_class();
    if (shape == ShapeKey{4, 48}) segments.erase(segments.begin() + 1);  // the kept backward
    teach(store, segments, shape);
  }
  CostsRequest request = request_at({4, 48});
  const auto waits = build_step_model(store, layers_of({0}), request);
  ASSERT_TRUE(waits.has_value());
  EXPECT_FALSE(waits->fit);
  request.derives_kept = true;
  const auto goes_on = build_step_model(store, layers_of({0}), request);
  ASSERT_TRUE(goes_on.has_value());
  EXPECT_TRUE(goes_on->fit);
  EXPECT_EQ(goes_on->point.layers[0].residue_bytes, 107 - 50);
  EXPECT_EQ(goes_on->point.layers[0].modes[0].backward_peak_bytes, 870 - 800 + 7);
}

TEST(StepModel, WithOneShapeItIsNeitherFitNorIdentifiedElsewhere) {
  SegmentStore store = fake_store();
  teach(store, one_class());
  const auto model = build_step_model(store, layers_of({0}), request_at({4, 128}));
  ASSERT_TRUE(model.has_value());
  EXPECT_FALSE(model->fit);
  EXPECT_FALSE(model->identified);
  EXPECT_EQ(model->upper.layers[0].modes[0].forward_net_bytes, 1800);
  EXPECT_EQ(model->point.layers[0].modes[0].forward_net_bytes, 900);
  EXPECT_EQ(model->upper.layers[0].residue_bytes, model->point.layers[0].residue_bytes);
}

TEST(StepModel, OptimizerNeedsTheSameAtEveryShape) {
  SegmentStore store = fake_store();
  auto segments = one_class();
  segments.push_back(segment(key_of(SegmentKind::kOptimizer), -20, 5000));
  teach(store, segments);
  const auto model = build_step_model(store, layers_of({0}), request_at({4, 128}));
  EXPECT_EQ(model->upper.optimizer_peak_bytes, 5000);
}

TEST(StepModel, WithoutAClockRecomputingMoreStillCostsMore) {
  SegmentStore store = fake_store();
  auto segments = one_class();
  for (SegmentObservation& item : segments) item.sample.seconds = 0;
  teach(store, segments);
  const auto model = build_step_model(store, layers_of({0}), request_at(kShape));
  EXPECT_GT(model->point.layers[0].modes[1].extra_seconds, 0);
}

TEST(StepModel, OffersOnlyTheMenu) {
  SegmentStore store = fake_store();
  teach(store, one_class());
  const std::vector<Mode::Kind> menu{Mode::Kind::kKeep};
  CostsRequest request = request_at(kShape);
  request.menu = menu;
  const auto model = build_step_model(store, layers_of({0}), request);
  ASSERT_TRUE(model.has_value());
  ASSERT_EQ(model->point.layers[0].modes.size(), 1u);
  EXPECT_EQ(model->point.layers[0].modes[0].mode, Mode::keep());
}

// Kept 900, of which 790 are put away when the layer ends.
void teach_offload(SegmentStore& store) {
  for (const ShapeKey& shape : {kShape, ShapeKey{4, 32}}) {
    auto segments = one_class();
    segments.push_back(segment(key_of(SegmentKind::kForward, Mode::offload()), 110, 950));
    segments.push_back(segment(key_of(SegmentKind::kBackward, Mode::offload()), -60, 650));
    segments.push_back(segment(key_of(SegmentKind::kRecompute, Mode::offload()), 0, 0, 5e-4));
    teach(store, segments, shape);
  }
}

TEST(StepModel, OffloadIsOnlyOnAMenuThatNamesIt) {
  SegmentStore store = fake_store();
  teach_offload(store);
  CostsRequest request = request_at(kShape);
  request.host_bytes = 1 << 20;
  EXPECT_EQ(build_step_model(store, layers_of({0}), request)->point.layers[0].modes.size(), 2U);
  const std::vector<Mode::Kind> menu{Mode::Kind::kKeep, Mode::Kind::kOffload, Mode::Kind::kFull};
  request.menu = menu;
  const auto model = build_step_model(store, layers_of({0}), request);
  ASSERT_TRUE(model.has_value());
  ASSERT_EQ(model->point.layers[0].modes.size(), 3U);
  const LayerModeCosts& offload = model->point.layers[0].modes[1];
  EXPECT_EQ(offload.mode, Mode::offload());
  EXPECT_EQ(offload.forward_net_bytes, 110);
  EXPECT_EQ(offload.backward_peak_bytes, 650);
  EXPECT_DOUBLE_EQ(offload.extra_seconds, 5e-4) << "cheaper than what it is listed before, and is";
}

TEST(StepModel, OffloadIsUnknownUntilItWasMeasured) {
  SegmentStore store = fake_store();
  teach(store, one_class());
  const std::vector<Mode::Kind> menu{Mode::Kind::kKeep, Mode::Kind::kOffload, Mode::Kind::kFull};
  CostsRequest request = request_at(kShape);
  request.menu = menu;
  const auto model = build_step_model(store, layers_of({0}), request);
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->point.layers[0].modes.size(), 2U);
  ASSERT_EQ(model->unknown.size(), 1U);
  EXPECT_EQ(model->unknown[0].mode, Mode::offload());
  EXPECT_FALSE(model->unknown[0].seen.has_value());
}

// One shape of a selective mode, and at `longer` only `keep` and `full`, grown by `growth`.
std::optional<LayerModeCosts> seen_of(const ShapeKey& longer, std::int64_t growth) {
  SegmentStore store = fake_store();
  std::vector<SegmentObservation> once = one_class();
  once.push_back(segment(key_of(SegmentKind::kForward, Mode::selective(0)), 200, 700));
  once.push_back(segment(key_of(SegmentKind::kBackward, Mode::selective(0)), -150, 400));
  teach(store, once);
  std::vector<SegmentObservation> grown = one_class();
  for (SegmentObservation& item : grown) {
    item.sample.net_bytes *= 2;
    item.sample.peak_bytes *= item.key.mode == Mode::full() ? growth : 2;
  }
  teach(store, grown, longer);
  const auto at_its_own = build_step_model(store, layers_of({0}), request_at(kShape));
  EXPECT_EQ(at_its_own->point.layers[0].modes.size(), 3U) << "known there";
  const auto model = build_step_model(store, layers_of({0}), request_at(longer));
  EXPECT_EQ(model->unknown.size(), 1U);
  EXPECT_EQ(model->unknown[0].mode, Mode::selective(0));
  return model->unknown[0].seen;
}

TEST(StepModel, WhatWasSeenElsewhereGrowsAsTheOthers) {
  const auto grown = [](std::int64_t bytes, double by) {
    return static_cast<std::int64_t>(by * 1.1 * static_cast<double>(bytes));
  };
  const ShapeKey twice_as_long{4, 128};
  const auto linear = seen_of(twice_as_long, 2);
  ASSERT_TRUE(linear.has_value());
  EXPECT_EQ(linear->forward_net_bytes, grown(200, 2));
  EXPECT_EQ(linear->forward_peak_bytes, grown(700, 2));
  EXPECT_EQ(linear->backward_peak_bytes, grown(400, 2));
  // Some of it with the square: of the mode it may be all.
  const auto square = seen_of(twice_as_long, 3);
  ASSERT_TRUE(square.has_value());
  EXPECT_EQ(square->backward_peak_bytes, grown(400, 4));
  EXPECT_FALSE(seen_of(twice_as_long, 5).has_value()) << "faster than that";
  // Not by less than it has: parts of it may not depend on the shape.
  const auto shorter = seen_of({4, 32}, 1);
  EXPECT_FALSE(shorter.has_value()) << "twice as much at half the length";
}

TEST(StepModel, TheHostIsFilledFromTheFirstLayerOn) {
  SegmentStore store = fake_store();
  teach_offload(store);
  const std::vector<Mode::Kind> menu{Mode::Kind::kKeep, Mode::Kind::kOffload, Mode::Kind::kFull};
  CostsRequest request = request_at(kShape);
  request.menu = menu;
  const auto with_offload = [&](std::int64_t host_bytes) {
    request.host_bytes = host_bytes;
    const auto model = build_step_model(store, layers_of({0, 0, 0}), request);
    std::string out;
    for (std::size_t i = 0; i < 3; ++i) {
      const auto& modes = model->point.layers[i].modes;
      EXPECT_EQ(modes.size(), model->upper.layers[i].modes.size());
      out += modes.size() == 3 ? 'o' : '-';
      EXPECT_EQ(modes.back().mode, Mode::full());
    }
    return out;
  };
  EXPECT_EQ(with_offload(839), "---");
  EXPECT_EQ(with_offload(840), "o--");
  EXPECT_EQ(with_offload(2519), "oo-");
  EXPECT_EQ(with_offload(2520), "ooo");
}

}  // namespace
}  // namespace pudica::testing
