// What a class's menu promises of a mode that never ran, told for another shape.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "predictor/step/segment_store.h"
#include "predictor/step/step_model.h"
#include "support/fake_predictor.h"

namespace pudica::testing {
namespace {

const ShapeKey kFound{4, 64};
constexpr std::int64_t kFreed = 2200;

void teach(SegmentStore& store, const ShapeKey& shape, double growth) {
  StepOutcome outcome;
  outcome.context.shape = shape;
  const auto add = [&](SegmentKind kind, Mode mode, std::int64_t net, std::int64_t peak) {
    const auto grown = [growth](std::int64_t bytes) {
      return static_cast<std::int64_t>(growth * static_cast<double>(bytes));
    };
    outcome.segments.push_back({{kind, 0, mode, 0}, 0, {{}, grown(net), grown(peak), 1e-3}});
  };
  add(SegmentKind::kForward, Mode::keep(), 8000, 8400);
  add(SegmentKind::kBackward, Mode::keep(), -8000, 800);
  add(SegmentKind::kForward, Mode::full(), 1000, 8800);
  add(SegmentKind::kBackward, Mode::full(), -1000, 8400);
  add(SegmentKind::kHead, Mode::keep(), 10, 40);
  store.observe(outcome, 0);
  store.settle({shape, Bytes(0), Bytes(0), false});
}

StepStructure with_menu(bool promises) {
  StepStructure out;
  out.layers.push_back({0, 0});
  StepStructure::Menu& menu = out.menus.emplace_back();
  menu.id = 7;
  menu.steps = {"drops some"};
  if (!promises) return out;
  menu.promises = {{kFreed, 0.25}};
  menu.shape = kFound;
  return out;
}

// `growth`: of what a kept layer holds, from where the menu was found.
UnknownMode unknown_at(const ShapeKey& shape, double growth, bool promises = true) {
  SegmentStore store([] { return std::make_unique<FakePredictor>(); });
  teach(store, kFound, 1);
  if (shape != kFound) teach(store, shape, growth);
  CostsRequest request;
  request.shape = shape;
  const auto model = build_step_model(store, with_menu(promises), request);
  EXPECT_TRUE(model.has_value());
  EXPECT_EQ(model->unknown.size(), 1U);
  EXPECT_EQ(model->unknown.at(0).mode, Mode::selective(0));
  EXPECT_FALSE(model->unknown.at(0).seen.has_value());
  return model->unknown.at(0);
}

std::int64_t times(double growth) {
  return static_cast<std::int64_t>(growth / 1.1 * static_cast<double>(kFreed));
}

TEST(PromisedModes, AreToldForTheShapeAsked) {
  EXPECT_EQ(unknown_at(kFound, 1).freed_bytes, times(1));
  EXPECT_EQ(unknown_at(kFound, 1).work_share, 0.25);
  // Some of the layer grows with the square: what is freed need not.
  EXPECT_EQ(unknown_at({4, 128}, 2).freed_bytes, times(2));
  EXPECT_EQ(unknown_at({4, 128}, 4).freed_bytes, times(2));
  EXPECT_EQ(unknown_at({8, 64}, 2).freed_bytes, times(2));
  // Where some of the layer shrinks with the square, all that is freed may.
  EXPECT_EQ(unknown_at({4, 32}, 0.5).freed_bytes, times(0.5));
  EXPECT_EQ(unknown_at({4, 32}, 0.4).freed_bytes, times(0.25));
  // A layer whose size does not follow the batches.
  EXPECT_EQ(unknown_at({4, 128}, 1).freed_bytes, times(1));
  EXPECT_EQ(unknown_at({4, 128}, 0.9).freed_bytes, 0);
}

// Layers run other operators there.
TEST(PromisedModes, NoModeIsOnOfferWhereTheMenuDoesNotFit) {
  SegmentStore store([] { return std::make_unique<FakePredictor>(); });
  teach(store, kFound, 1);
  StepStructure structure = with_menu(true);
  structure.menus[0].not_at = {ShapeKey{4, 32}, kFound};
  CostsRequest request;
  request.shape = kFound;
  const auto model = build_step_model(store, structure, request);
  ASSERT_TRUE(model.has_value());
  EXPECT_TRUE(model->unknown.empty());
  EXPECT_EQ(model->point.layers[0].modes.size(), 2U);
}

TEST(PromisedModes, NothingIsFreedForCertainWhereNothingIsKnown) {
  EXPECT_EQ(unknown_at({4, 32}, 0.1).freed_bytes, 0) << "it shrank faster than any of them may";
  EXPECT_EQ(unknown_at({4, 64, 64}, 1).freed_bytes, 0) << "a shape of another kind";
  const UnknownMode untold = unknown_at(kFound, 1, /*promises=*/false);
  EXPECT_EQ(untold.freed_bytes, 0);
  EXPECT_EQ(untold.work_share, 1);
}

}  // namespace
}  // namespace pudica::testing
