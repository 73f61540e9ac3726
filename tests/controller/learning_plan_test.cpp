#include "controller/learning_plan.h"

#include <gtest/gtest.h>

#include "support/fake_predictor.h"

namespace pudica::testing {
namespace {

StepLearner fake_learner() {
  return StepLearner([] { return std::make_unique<FakePredictor>(); });
}

StepStructure layers_of(const std::vector<std::uint16_t>& classes) {
  StepStructure out;
  for (const std::uint16_t layer_class : classes) out.layers.push_back({layer_class, 0});
  return out;
}

// A step at `length` in which layers of a class ran in a mode.
void teach(StepLearner& learner, std::int64_t length, std::uint16_t layer_class, Mode mode) {
  StepOutcome outcome;
  outcome.context.shape = ShapeKey{1, length};
  for (const SegmentKind kind : {SegmentKind::kForward, SegmentKind::kBackward}) {
    outcome.segments.push_back({{kind, layer_class, mode, 0}, -1, {{}, 1, 1, 0}});
  }
  learner.observe(outcome);
}

std::vector<Mode> modes_of(const std::string& letters) {
  std::vector<Mode> out;
  for (const char letter : letters) out.push_back(letter == 'f' ? Mode::full() : Mode::keep());
  return out;
}

// What the step's first layer alone makes would else be taken for the mode's.
TEST(LearningPlan, TeachesFullOnTheFirstLayerOfEachClassButTheSteps) {
  const StepLearner learner = fake_learner();
  EXPECT_EQ(learning_modes(learner, layers_of({0, 0, 0, 1, 1, 1}), {}), modes_of("kfkfkk"));
  EXPECT_EQ(learning_modes(learner, layers_of({0, 1, 0}), {}), modes_of("kff"));
}

TEST(LearningPlan, StopsTeachingAClassThatIsKnown) {
  StepLearner learner = fake_learner();
  for (const Mode mode : {Mode::keep(), Mode::full()}) {
    teach(learner, 8, 0, mode);
    teach(learner, 9, 0, mode);
  }
  EXPECT_EQ(learning_modes(learner, layers_of({0, 0, 0, 1, 1, 1}), {}), modes_of("kkkfkk"));
}

TEST(LearningPlan, AClassOfOneLayerAlternates) {
  StepLearner learner = fake_learner();
  const StepStructure one = layers_of({0});
  std::string seen;
  for (std::int64_t length = 1; length <= 5; ++length) {
    const auto modes = learning_modes(learner, one, {});
    seen += modes[0] == Mode::full() ? 'f' : 'k';
    teach(learner, length, 0, modes[0]);
  }
  EXPECT_EQ(seen, "fkfkk");
}

TEST(LearningPlan, AClassOfOneLayerLearnsItsMenuLast) {
  StepLearner learner = fake_learner();
  StepStructure one = layers_of({0});
  one.menus = {{7, {"a", "b"}}};
  std::string seen;
  for (std::int64_t length = 1; length <= 9; ++length) {
    const Mode mode = learning_modes(learner, one, {})[0];
    seen += mode == Mode::full()   ? 'f'
            : mode == Mode::keep() ? 'k'
                                   : static_cast<char>('0' + mode.step);
    teach(learner, length, 0, mode);
  }
  EXPECT_EQ(seen, "fkfk0101k");
}

// A layer that would run `full` does not take a selective mode, which holds more.
TEST(LearningPlan, TheMenuIsTaughtInLayersThatWouldBeKept) {
  StepLearner learner = fake_learner();
  for (const Mode mode : {Mode::keep(), Mode::full()}) {
    teach(learner, 8, 0, mode);
    teach(learner, 9, 0, mode);
  }
  StepStructure layers = layers_of({0, 0, 0, 0});
  layers.menus = {{7, {"a", "b", "c"}}};
  const auto planned = modes_of("ffkk");
  LearningRequest request;
  request.planned = planned;
  const std::vector<Mode> expected{Mode::full(), Mode::full(), Mode::selective(0),
                                   Mode::selective(1)};
  EXPECT_EQ(learning_modes(learner, layers, request), expected);
}

TEST(LearningPlan, ShelteredTeachesKeep) {
  const StepLearner learner = fake_learner();
  LearningRequest request;
  request.default_mode = Mode::full();
  EXPECT_EQ(learning_modes(learner, layers_of({0, 0, 0, 0}), request), modes_of("fkff"));
}

TEST(LearningPlan, KeepsToThePlanBesidesTeaching) {
  StepLearner learner = fake_learner();
  const auto planned = modes_of("kffff");
  LearningRequest request;
  request.planned = planned;
  EXPECT_EQ(learning_modes(learner, layers_of({0, 0, 0, 0, 0}), request), planned);
  const auto all = modes_of("fffff");
  request.planned = all;
  EXPECT_EQ(learning_modes(learner, layers_of({0, 0, 0, 0, 0}), request), modes_of("fkfff"));
}

TEST(LearningPlan, KeepsToTheMenu) {
  const StepLearner learner = fake_learner();
  const std::vector<Mode::Kind> menu{Mode::Kind::kKeep};
  LearningRequest request;
  request.menu = menu;
  EXPECT_EQ(learning_modes(learner, layers_of({0, 0, 0}), request), modes_of("kkk"));
}

TEST(LearningPlan, TeachesVariantsThatHaveSeveralLayers) {
  const StepLearner learner = fake_learner();
  StepStructure layers = layers_of({0, 0, 0, 0, 0});
  layers.layers[0].variant = layers.layers[1].variant = SegmentKey::kNoInputGradient;
  layers.layers[4].variant = SegmentKey::kLastOfClass;
  EXPECT_EQ(learning_modes(learner, layers, {}), modes_of("kffkk"));
}

TEST(LearningPlan, TeachesOffloadWhereTheMenuNamesIt) {
  StepLearner learner = fake_learner();
  const std::vector<Mode::Kind> menu{Mode::Kind::kKeep, Mode::Kind::kOffload, Mode::Kind::kFull};
  LearningRequest request;
  request.menu = menu;
  const StepStructure structure = layers_of({0, 0, 0});
  EXPECT_EQ(learning_modes(learner, structure, request),
            (std::vector<Mode>{Mode::offload(), Mode::full(), Mode::keep()}));
  EXPECT_TRUE(lacks_menu_modes(learner, structure, request));
  EXPECT_FALSE(lacks_menu_modes(learner, structure, {})) << "not on the usual menu";
  for (const std::int64_t length : {8, 9}) {
    for (const Mode mode : {Mode::keep(), Mode::full(), Mode::offload()}) {
      teach(learner, length, 0, mode);
    }
  }
  EXPECT_FALSE(lacks_menu_modes(learner, structure, request));
}

}  // namespace
}  // namespace pudica::testing
