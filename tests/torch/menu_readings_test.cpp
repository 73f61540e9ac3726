// Layers that run other operators than their menu was found from, and save the same tensors: the
// menu is read for those as well.
#include <cstdint>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

using StrangeCall = std::function<at::Tensor(ToyLayer&, const at::Tensor&)>;

struct Way {
  const char* name;
  StrangeCall call;
};

// Where nothing was let go yet, and where all was.
const Way kBefore{
    "before", [](ToyLayer& layer, const at::Tensor& in) {
      return layer.forward(at::constant_pad_nd(in, {0, 0, 0, 8}).narrow(1, 0, in.size(1)));
    }};
const Way kBehind{"behind",
                  [](ToyLayer& layer, const at::Tensor& in) { return layer.forward(in).clone(); }};

class MenuReadingsTest : public SessionTest, public ::testing::WithParamInterface<Way> {
 protected:
  MenuReadingsTest() {
    policy_->menus = true;
    policy_->record = true;
    strange_call_ = GetParam().call;
    is_strange_ = [](std::int64_t length) { return length % 8 != 0; };
  }

  std::int64_t peak_of_layer_1() {
    for (const SegmentObservation& item : policy_->outcomes.back().segments) {
      if (item.key.kind == SegmentKind::kForward && item.layer == 1) return item.sample.peak_bytes;
    }
    ADD_FAILURE() << "no forward of layer 1 was recorded";
    return 0;
  }

  void plan(Mode mode) {
    policy_->plan = plan_of(std::vector<Mode>(4, mode));
    policy_->plan->strange_mode = Mode::full();
  }

  void expect_same(const std::vector<at::Tensor>& gradients,
                   const std::vector<at::Tensor>& expected) {
    ASSERT_EQ(gradients.size(), expected.size());
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_TRUE(at::equal(gradients[i], expected[i])) << i;
    }
  }
};

// Found at whole vectors and read at others, and the other way round: the first call of the others
// is read, all of the plan runs, and nothing is told of strangers.
TEST_P(MenuReadingsTest, TheFirstCallIsReadAndThePlanRuns) {
  for (const bool found_padded : {false, true}) {
    SCOPED_TRACE(found_padded);
    const std::int64_t found = found_padded ? 21 : 24;
    const std::int64_t read = found_padded ? 32 : 30;
    policy_->menus = false;
    plan(Mode::keep());
    const auto kept = train_step(*attach_with(1 << 30), read);
    policy_->menus = true;
    const auto handle = attach_with(1 << 30);
    train_step(*handle, found);
    const std::size_t steps = policy_->structures.back().menus[0].steps.size();
    ASSERT_GE(steps, 2U);
    for (std::size_t k = 0; k < steps; ++k) {
      const Mode mode = Mode::selective(static_cast<std::uint16_t>(k));
      plan(mode);
      expect_same(train_step(*handle, read), kept);
      const bool is_first = k == 0;
      EXPECT_EQ(policy_->outcomes.back().searched, is_first) << k;
      std::vector<Mode> ran(4, mode);
      if (is_first) ran[0] = kNotMeasured;  // its forward held all until the end
      EXPECT_EQ(modes_run(), ran) << k;
    }
    EXPECT_TRUE(policy_->structures.back().menus[0].not_at.empty());
  }
}

// From then on each call follows the operators that its shape is known for: a call that went by the
// others first would have to take back what it let go.
TEST_P(MenuReadingsTest, ShapesAreKnownByTheirVectors) {
  const auto handle = attach_with(1 << 30);
  plan(Mode::keep());
  train_step(*handle, 24);
  const Mode mode = Mode::selective(1);
  plan(mode);
  for (const std::int64_t length : {24, 30}) train_step(*handle, length);
  for (const std::int64_t length : {16, 21, 40, 32, 19, 33, 8}) {
    train_step(*handle, length);
    EXPECT_EQ(modes_run(), std::vector<Mode>(4, mode)) << length;
    EXPECT_FALSE(policy_->outcomes.back().searched) << length;
  }
}

// Where the shape tells nothing the first call goes by the step before: it holds all until it ends,
// says nothing of its mode, and the others know.
TEST_P(MenuReadingsTest, CallsThatAreNotExpectedDoAsPlanned) {
  is_strange_ = [](std::int64_t length) { return length == 19 || length == 27; };
  const auto handle = attach_with(1 << 30);
  plan(Mode::keep());
  for (const std::int64_t length : {21, 19}) train_step(*handle, length);
  const Mode mode = Mode::selective(1);
  plan(mode);
  std::vector<Mode> expected(4, mode);
  expected[0] = kNotMeasured;
  for (const std::int64_t length : {27, 35, 19, 21}) {
    train_step(*handle, length);
    EXPECT_EQ(modes_run(), expected) << length;
    EXPECT_TRUE(policy_->outcomes.back().searched) << length << ": not all ran as planned";
  }
}

// Layers of one class that differ in their operators, at every shape: each is known by its place.
TEST_P(MenuReadingsTest, LayersThatTakeTurnsAreKnownByTheirPlaces) {
  is_strange_ = [](std::int64_t /*length*/) { return true; };
  strange_call_ = [this](ToyLayer& layer, const at::Tensor& in) {
    const bool odd = &layer == model_->layers[1].get() || &layer == model_->layers[3].get();
    return odd ? GetParam().call(layer, in) : layer.forward(in);
  };
  const auto handle = attach_with(1 << 30);
  plan(Mode::keep());
  train_step(*handle, 24);
  const Mode mode = Mode::selective(1);
  plan(mode);
  train_step(*handle, 24);
  for (const std::int64_t length : {24, 30, 16, 21}) {
    train_step(*handle, length);
    EXPECT_EQ(modes_run(), std::vector<Mode>(4, mode)) << length;
    EXPECT_FALSE(policy_->outcomes.back().searched) << length;
  }
}

// What goes in such calls goes as it is saved: the forward needs less at its peak.
TEST_P(MenuReadingsTest, WhatIsDroppedGoesEarly) {
  const auto handle = attach_with(1 << 30);
  plan(Mode::keep());
  for (const std::int64_t length : {24, 30, 30}) train_step(*handle, length);
  const std::int64_t kept = peak_of_layer_1();
  const std::size_t steps = policy_->structures.back().menus[0].steps.size();
  plan(Mode::selective(static_cast<std::uint16_t>(steps - 1)));
  train_step(*handle, 30);
  EXPECT_LT(peak_of_layer_1(), kept);
}

// Nor does a reading run again what the rules want kept.
TEST_P(MenuReadingsTest, WhatTheRulesKeepIsNotRunAgain) {
  strange_call_ = [](ToyLayer& layer, const at::Tensor& in) {
    return layer.forward(in.size(1) == 30 ? in.cosh() : in.sinh());
  };
  is_strange_ = [](std::int64_t /*length*/) { return true; };
  menu_rules_.keep_operators = {"cosh"};
  const auto handle = attach_with(1 << 30);
  plan(Mode::keep());
  train_step(*handle, 24);
  const std::size_t steps = policy_->structures.back().menus[0].steps.size();
  plan(Mode::selective(static_cast<std::uint16_t>(steps - 1)));
  train_step(*handle, 30);
  std::vector<Mode> run(4, Mode::full());
  run[0] = Mode::keep();
  EXPECT_EQ(modes_run(), run) << "a stranger";
}

// Single tensors of such a call come back by its own operators.
TEST_P(MenuReadingsTest, RevokesSingleTensors) {
  const auto handle = attach_with(1 << 30);
  plan(Mode::keep());
  policy_->plan->revocable = true;
  policy_->record = false;
  train_step(*handle, 24);
  const auto kept = train_step(*handle, 30);
  handle->set_budget(report_.peak_bytes - Bytes(1));
  expect_same(train_step(*handle, 30), kept);
  EXPECT_GT(report_.revocations, 0);
  EXPECT_EQ(report_.recomputed_layers, 0) << "a layer went as a whole";
}

INSTANTIATE_TEST_SUITE_P(Ways, MenuReadingsTest, ::testing::Values(kBefore, kBehind),
                         [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace pudica::testing
