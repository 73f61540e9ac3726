// The learned state as text: what is saved is what is known, and damage is refused.
#include <gtest/gtest.h>

#include "controller/controller_harness.h"
#include "controller/learned_state.h"

namespace pudica::testing {
namespace {

const ShapeKey kLongest{8, 512};

TEST(LearnedState, GivesTheBodyBack) {
  const std::string body = "line\nother\n";
  EXPECT_EQ(*open_state(seal_state(body, "a model\nof two lines"), "a model\nof two lines"), body);
  EXPECT_EQ(*open_state(seal_state("", ""), ""), "");
}

TEST(LearnedState, RefusesAnotherFingerprint) {
  const auto opened = open_state(seal_state("body", "bert"), "gpt");
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(opened.error().message.find("bert"), std::string::npos);
  EXPECT_NE(opened.error().message.find("gpt"), std::string::npos);
}

TEST(LearnedState, RefusesEveryChangedByteAndEveryTruncation) {
  const std::string text = seal_state("some body of text\n", "bert");
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(open_state(damaged, "bert").has_value()) << i;
    EXPECT_FALSE(open_state(text.substr(0, i), "bert").has_value()) << i;
  }
}

// Whoever reads the state (the daemon) answers as the process does, what returns included.
TEST(ControllerState, ARestoredStateGivesTheSameEstimates) {
  Harness taught({.vocabulary = 3000, .holds_outputs = true});
  const Bytes budget = taught.budget_at(kLongest, 0.4);
  for (const std::int64_t length : lengths(20, 6)) taught.step({8, length}, budget);
  const auto reader = make_controller({});
  ASSERT_TRUE(reader->restore(taught.controller->serialize("bert"), "bert").has_value());
  const auto ours = taught.controller->estimate(kLongest, budget);
  const auto theirs = reader->estimate(kLongest, budget);
  ASSERT_TRUE(ours.has_value() && theirs.has_value());
  EXPECT_EQ(theirs->keep_all_peak_bytes, ours->keep_all_peak_bytes);
  EXPECT_EQ(theirs->floor_peak_bytes, ours->floor_peak_bytes);
  Harness plain({.vocabulary = 3000});
  for (const std::int64_t length : lengths(20, 6)) plain.step({8, length}, budget);
  const auto without = plain.controller->estimate(kLongest, budget);
  EXPECT_GT(ours->floor_peak_bytes, without->floor_peak_bytes);
}

// A run that goes on from a learned state makes its optimizer's state in its first step.
TEST(ControllerState, TheFirstStepAfterARestoreMakesTheOptimizersState) {
  const Bytes budget(std::int64_t{1} << 30U);
  Harness taught({});
  for (std::int64_t length = 4; length <= 40; length += 4) taught.step({1, length}, budget);
  Harness anew({});
  ASSERT_TRUE(anew.controller->restore(taught.controller->serialize("bert"), "bert").has_value());
  for (int i = 0; i < 3; ++i) {
    const auto step = anew.step({1, 16}, budget);  // so short that the optimizer needs most
    EXPECT_EQ(step.outcome.peak_bytes, step.decision.plan->predicted_peak_bytes) << i;
  }
}

// Times too; and a file from before they were relative is read as it was.
TEST(ControllerState, ARestoredStateHasTheSamePrices) {
  Harness taught({.menu_steps = 3, .pace_noise = 0.8});
  const Bytes budget = taught.budget_at(kLongest, 0.3);
  StepContext context;
  for (const std::int64_t length : lengths(40, 6)) {
    context = taught.step({8, length}, budget).outcome.context;
  }
  const auto prices = [&context](const Controller& controller) {
    std::vector<double> out;
    const auto costs = controller.costs(context);
    if (!costs) return out;
    for (const LayerModeCosts& mode : costs->layers[1].modes) out.push_back(mode.extra_seconds);
    return out;
  };
  const std::string text = taught.controller->serialize("bert");
  Harness reader({.menu_steps = 3}, {.trusts_restored_states = true});
  reader.controller->on_structure(reader.model.structure());
  ASSERT_TRUE(reader.controller->restore(text, "bert").has_value());
  ASSERT_EQ(prices(*taught.controller).size(), 5U);
  EXPECT_EQ(prices(*reader.controller), prices(*taught.controller));
  const auto body = open_state(text, "bert");
  ASSERT_TRUE(body.has_value());
  const std::size_t begin = body->find("\ntimes ") + 1;
  std::string before = *body;
  before.erase(begin, body->find("predictor\n", begin) - begin);
  ASSERT_TRUE(reader.controller->restore(seal_state(before, "bert"), "bert").has_value());
  const std::vector<double> in_seconds = prices(*reader.controller);
  EXPECT_EQ(in_seconds.size(), 5U);
  EXPECT_EQ(std::ranges::count_if(in_seconds, [](double price) { return price > 1e-6; }), 4);
  EXPECT_NE(in_seconds, prices(*taught.controller)) << "there are no ratios in it";
  for (const char* times : {"times\n", "times -1\n", "times 99999999\n", "times 5\nab\ncd\n"}) {
    std::string damaged = before;
    damaged.insert(begin, times);
    EXPECT_FALSE(reader.controller->restore(seal_state(damaged, "bert"), "bert").has_value())
        << times;
  }
}

// What a menu is reckoned to do, and where it does not hold; states of before told neither.
TEST(ControllerState, ARestoredMenuPromisesTheSame) {
  Harness taught({.menu_steps = 3});
  const Bytes budget = taught.budget_at(kLongest, 0.3);
  for (const std::int64_t length : lengths(6, 6)) taught.step({8, length}, budget);
  StepStructure structure = taught.controller->snapshot().structure;
  structure.menus[0].not_at = {{8, 77}, {3, 512}};
  taught.controller->on_structure(structure);
  const std::string text = taught.controller->serialize("bert");
  Harness reader({.menu_steps = 3}, {.trusts_restored_states = true});
  ASSERT_TRUE(reader.controller->restore(text, "bert").has_value());
  ASSERT_EQ(structure.menus[0].promises.size(), 3U);
  EXPECT_EQ(reader.controller->snapshot().structure.menus, structure.menus);

  std::string before = *open_state(text, "bert");
  const std::size_t end = before.find('\n', before.find("\nmenu ") + 1);
  const std::size_t told = before.rfind(" 3 8x", end) + 2;
  before.erase(told, end - told);
  ASSERT_TRUE(reader.controller->restore(seal_state(before, "bert"), "bert").has_value());
  const StepStructure::Menu menu = reader.controller->snapshot().structure.menus[0];
  EXPECT_EQ(menu.steps, structure.menus[0].steps);
  EXPECT_TRUE(menu.promises.empty());
}

TEST(ControllerState, RestoreSkipsTheWarmUp) {
  Harness taught({});
  const Bytes budget = taught.budget_at(kLongest, 0.4);
  for (const std::int64_t length : lengths(20, 6)) taught.step({8, length}, budget);
  const std::string text = taught.controller->serialize("bert");

  Harness fresh({});
  ASSERT_TRUE(fresh.controller->restore(text, "bert").has_value());
  fresh.step({8, 64}, budget);  // the optimizer makes its state
  std::int64_t recorded = 0;
  for (const std::int64_t length : {496, 72, 504}) {
    const auto step = fresh.step({8, length}, budget);
    EXPECT_EQ(step.state, ControllerState::kPlanning) << step.decision.plan->reason;
    recorded += step.decision.record ? 1 : 0;
    EXPECT_EQ(step.outcome.peak_bytes, step.decision.plan->predicted_peak_bytes);
    EXPECT_EQ(step.outcome.revocations, 0);
  }
  EXPECT_LE(recorded, 1);  // the first with `full` layers
  EXPECT_EQ(fresh.controller->snapshot().counters.learning_steps, 0);
}

TEST(ControllerState, RestoredModelEstimatesBeforeAnyStep) {
  Harness taught({});
  const Bytes budget = taught.budget_at(kLongest, 0.4);
  for (const std::int64_t length : lengths(20, 6)) taught.step({8, length}, budget);
  Harness fresh({});
  ASSERT_TRUE(fresh.controller->restore(taught.controller->serialize("m"), "m").has_value());
  const auto before = taught.controller->estimate({8, 384}, budget);
  const auto after = fresh.controller->estimate({8, 384}, budget);
  ASSERT_TRUE(after.has_value()) << after.error().message;
  EXPECT_EQ(after->keep_all_peak_bytes, before->keep_all_peak_bytes);
  EXPECT_EQ(after->floor_peak_bytes, before->floor_peak_bytes);
  EXPECT_EQ(after->plan->modes, before->plan->modes);
}

TEST(ControllerState, RestoreOfAHalfLearnedModelGoesOnLearning) {
  Harness taught({});
  const Bytes budget = taught.budget_at(kLongest, 0.4);
  taught.step({8, 128}, budget);
  Harness fresh({});
  ASSERT_TRUE(fresh.controller->restore(taught.controller->serialize("m"), "m").has_value());
  EXPECT_EQ(fresh.step({8, 160}, budget).state, ControllerState::kLearning);
  EXPECT_EQ(fresh.controller->serialize("m").substr(0, 14), "pudica-state 1");
}

TEST(ControllerState, DamageIsRefusedAndChangesNothing) {
  Harness taught({});
  const Bytes budget = taught.budget_at(kLongest, 0.4);
  for (const std::int64_t length : lengths(8, 6)) taught.step({8, length}, budget);
  const std::string text = taught.controller->serialize("bert");
  Harness other({});
  for (const std::int64_t length : lengths(8, 7)) other.step({8, length}, budget);
  const std::string before = other.controller->serialize("bert");
  for (std::size_t i = 0; i < text.size(); i += text.size() / 50 + 1) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    const auto done = other.controller->restore(damaged, "bert");
    ASSERT_FALSE(done.has_value()) << i;
    EXPECT_EQ(done.error().code, ErrorCode::kCorrupt) << i;
  }
  // A sound envelope around a body that is none.
  for (const char* body :
       {"", "nonsense\n", "recorded x\n", "segments\n", "class 99\nab",
        "segments\nonce 1 2\npredictor\n", "recorded -1\nsegments\n", "error nan\nsegments\n",
        "base 0 9000000000000000000\nsegments\n", "layer 0 256\nsegments\n",
        "segments\nonce 99 0 0 0 0 4x8\npredictor\n", "segments\nhead 0 0 0 -5\npredictor\n",
        "segments\npredictor\nnothing", "menu 0 7 1 2x\nsegments\n", "menu 0 7 1 2x9\nsegments\n",
        "menu 0 7 1 2x9 64 1.5\nsegments\n", "menu 0 7 1 2x9 -64 .5\nsegments\n",
        "menu 0 7 1 2x9 64 nan\nsegments\n", "menu 0 7 1 2x9 64 .5 2x8 x\nsegments\n"}) {
    const auto done = other.controller->restore(seal_state(body, "bert"), "bert");
    ASSERT_FALSE(done.has_value()) << body;
    EXPECT_EQ(done.error().code, ErrorCode::kCorrupt) << body;
  }
  EXPECT_FALSE(other.controller->restore(text, "gpt").has_value());
  EXPECT_EQ(other.controller->serialize("bert"), before);
}

}  // namespace
}  // namespace pudica::testing
