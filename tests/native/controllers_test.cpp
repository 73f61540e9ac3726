// One learned model for each way of calling: what is told late goes to the right one.
#include "native/controllers.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/synthetic_model.h"

namespace pudica::testing {
namespace {

// Runs a step whose times are not known at its end; returns them.
std::vector<SegmentTime> step_of(Controller& controller, SyntheticModel& model,
                                 const ShapeKey& shape, std::uint64_t number) {
  StepContext context = model.context(shape, model.settled_base() + Bytes(1 << 30));
  context.step = number;
  const StepDecision decision = controller.begin_step(context);
  StepOutcome outcome = model.run(context, decision);
  std::vector<SegmentTime> times;
  for (SegmentObservation& item : outcome.segments) {
    times.push_back({item.key, shape, std::exchange(item.sample.seconds, 0.0), number});
  }
  controller.on_structure(model.structure());
  controller.end_step(outcome);
  return times;
}

// Of every segment whose times are known, in order.
std::vector<std::vector<double>> learned_seconds(const Controller& controller) {
  std::vector<std::vector<double>> found;
  for (const LearnedQuantity& one : controller.snapshot().learned) {
    if (one.quantity == "seconds" && one.samples > 0) found.push_back(one.coefficients.at(0));
  }
  return found;
}

class Calls : public ::testing::Test {
 protected:
  // Of the call that comes next, told to `controllers` and to a controller of its own.
  void step(std::int64_t kind, const ShapeKey& shape) {
    ++number_;
    controllers_.select(kind);
    const auto times =
        step_of(controllers_, models_[static_cast<std::size_t>(kind)], shape, number_);
    late_.insert(late_.end(), times.begin(), times.end());
    auto& apart = *apart_[static_cast<std::size_t>(kind)];
    apart.learn_times(
        step_of(apart, models_apart_[static_cast<std::size_t>(kind)], shape, number_));
  }

  void expect_times_of(std::int64_t kind) {
    controllers_.select(kind);
    const auto seconds = learned_seconds(controllers_);
    EXPECT_FALSE(seconds.empty());
    EXPECT_EQ(seconds, learned_seconds(*apart_[static_cast<std::size_t>(kind)])) << kind;
  }

  python::Controllers controllers_{ControllerOptions{}};
  std::vector<SyntheticModel> models_{SyntheticModel({}), SyntheticModel({.width = 128})};
  std::vector<SyntheticModel> models_apart_{SyntheticModel({}), SyntheticModel({.width = 128})};
  std::vector<std::unique_ptr<Controller>> apart_ = [] {
    std::vector<std::unique_ptr<Controller>> made;
    for (int i = 0; i < 2; ++i) made.push_back(make_controller({}));
    return made;
  }();
  std::uint64_t number_ = 0;
  std::vector<SegmentTime> late_;
};

TEST_F(Calls, TimesGoToTheModelOfTheStepTheyAreOf) {
  for (const std::int64_t length : {96, 128, 160}) {
    step(0, {8, length});
    step(1, {8, length + 8});
  }
  controllers_.select(1);  // where the next step would begin
  controllers_.learn_times(late_);
  expect_times_of(0);
  expect_times_of(1);
}

TEST_F(Calls, TimesOfStepsThatAreNotRememberedAreLeftOut) {
  step(0, {8, 96});
  for (SegmentTime& time : late_) time.step += 1000;
  controllers_.learn_times(late_);
  EXPECT_TRUE(learned_seconds(controllers_).empty());
}

// The hook layer tells of layers when they change: a kind whose layers are those of the step before
// it, of another kind, learns of them all the same.
TEST(Kinds, LayersOfAnotherKindsStepAreKnownToo) {
  python::Controllers controllers{ControllerOptions{}};
  SyntheticModel model({});
  std::uint64_t number = 0;
  StepStructure told;
  StepDecision decision;
  for (const std::int64_t kind : {0, 0, 1, 1, 1, 1, 1}) {
    controllers.select(kind);
    StepContext context = model.context({8, 96 + 32 * static_cast<std::int64_t>(number % 3)},
                                        model.settled_base() + Bytes(1 << 30));
    context.step = ++number;
    decision = controllers.begin_step(context);
    StepOutcome outcome = model.run(context, decision);
    outcome.layer_calls = static_cast<std::int64_t>(model.structure().layers.size());
    if (!(told == model.structure())) controllers.on_structure(told = model.structure());
    controllers.end_step(outcome);
  }
  ASSERT_NE(decision.plan, nullptr);
  EXPECT_GT(decision.plan->predicted_peak_bytes, Bytes(0)) << decision.plan->reason;
}

TEST_F(Calls, AnUnplannedStepHasNoPlanAndTeachesNothing) {
  step(0, {8, 96});
  const std::string before = controllers_.serialize("model");
  controllers_.select(python::Controllers::kUnplanned);
  SyntheticModel& model = models_[0];
  const StepContext context = model.context({8, 128}, model.settled_base() + Bytes(1 << 30));
  const StepDecision decision = controllers_.begin_step(context);
  EXPECT_EQ(decision.plan, nullptr);
  EXPECT_FALSE(decision.record);
  controllers_.on_structure(models_[1].structure());
  StepOutcome outcome;
  outcome.context = context;
  outcome.peak_bytes = Bytes(1 << 20);
  outcome.layer_calls = 2;
  controllers_.end_step(outcome);
  EXPECT_EQ(controllers_.serialize("model"), before);
  step(0, {8, 128});
}

}  // namespace
}  // namespace pudica::testing
