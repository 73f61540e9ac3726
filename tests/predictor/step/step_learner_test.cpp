#include "pudica/step_learner.h"

#include <memory>

#include <gtest/gtest.h>

#include "support/fake_predictor.h"

namespace pudica::testing {
namespace {

StepLearner fake_learner() {
  return StepLearner([] { return std::make_unique<FakePredictor>(); });
}

// A layer of class 3 ran `full` at this length.
void teach(StepLearner& learner, std::int64_t length) {
  StepOutcome outcome;
  outcome.context.shape = ShapeKey{1, length};
  for (const SegmentKind kind : {SegmentKind::kForward, SegmentKind::kBackward}) {
    outcome.segments.push_back({{kind, 3, Mode::full(), 0}, -1, {{}, 1, 1, 0}});
  }
  EXPECT_EQ(learner.observe(outcome).observed, 2);
}

TEST(StepLearner, TellsWhatWasMeasured) {
  StepLearner learner = fake_learner();
  teach(learner, 8);
  teach(learner, 9);
  EXPECT_EQ(learner.shapes_measured(3, 0, Mode::full(), false), 2);
  EXPECT_EQ(learner.shapes_measured(3, SegmentKey::kNoInputGradient, Mode::full(), false), 0);
  EXPECT_EQ(learner.shapes_measured(3, 0, Mode::full(), true), 0) << "none with gradients present";
  EXPECT_EQ(learner.shapes_measured(3, 0, Mode::keep(), false), 0);
  const SegmentKey key{SegmentKind::kForward, 3, Mode::full(), 0};
  EXPECT_TRUE(learner.segment(key, ShapeKey{1, 8}).has_value());
  EXPECT_FALSE(learner.refuses_full(3));
}

TEST(StepLearner, ItsVersionRisesAlsoWhereAllIsForgotten) {
  StepLearner learner = fake_learner();
  teach(learner, 8);
  const std::uint64_t taught = learner.version();
  learner.forget();
  const std::uint64_t forgotten = learner.version();
  EXPECT_GT(forgotten, taught);
  EXPECT_FALSE(learner.segment({SegmentKind::kForward, 3, Mode::full(), 0}, ShapeKey{1, 8}));
  teach(learner, 8);
  EXPECT_GT(learner.version(), forgotten);
}

TEST(StepLearner, AStateThatIsDamagedChangesNothing) {
  StepLearner learner{PredictorOptions{}};
  teach(learner, 8);
  const std::string state = learner.serialize();
  const std::uint64_t version = learner.version();
  ASSERT_EQ(learner.restore("predictor\nno such thing").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(learner.serialize(), state);
  EXPECT_EQ(learner.version(), version);
  ASSERT_TRUE(learner.restore(state).has_value());
  EXPECT_GT(learner.version(), version);
  EXPECT_EQ(learner.serialize(), state);
}

}  // namespace
}  // namespace pudica::testing
