#include "daemon/model_pool.h"

#include <nlohmann/json.hpp>

#include "daemon/model_support.h"

namespace pudica::daemon::testing {
namespace {

// A new process that begins with a learned state.
std::unique_ptr<Process> process_with(const std::string& state, const SyntheticSpec& spec = {}) {
  auto process = std::make_unique<Process>(spec);
  const auto restored = process->controller().restore(state, kFingerprint);
  EXPECT_TRUE(restored) << restored.error().message;
  return process;
}

// A step of a process that was handed a pool's state: planned, right to the byte, within budget.
void expect_exact_step(Process& process, const ShapeKey& shape, double share) {
  const Bytes budget = process.budget_at(shape, share);
  const StepRecord record = process.step(shape, budget);
  ASSERT_TRUE(record.predicted_bytes) << shape.to_string();
  EXPECT_EQ(*record.predicted_bytes, record.measured_bytes) << shape.to_string();
  EXPECT_LE(record.measured_bytes, budget);
  EXPECT_EQ(record.revocations, 0);
  EXPECT_EQ(process.learning_steps(), 0) << shape.to_string();
}

TEST(ModelPool, RanksThatSawHalfTheShapesTeachAThirdRunAll) {
  // Neither rank has seen the other's lengths. The pool gets the records of the two in turn, as a
  // daemon does.
  ModelPool pool;
  Process first;
  Process second;
  for (int i = 0; i < 2; ++i) {
    for (const ShapeKey& shape : {ShapeKey{4, 64}, ShapeKey{6, 80}}) {
      ASSERT_TRUE(pool.observe(kFingerprint, first.step(shape), "a"));
    }
    for (const ShapeKey& shape : {ShapeKey{4, 160}, ShapeKey{5, 200}}) {
      ASSERT_TRUE(pool.observe(kFingerprint, second.step(shape), "b"));
    }
  }
  const auto state = pool.state(kFingerprint);
  ASSERT_TRUE(state);
  const auto third = process_with(*state);
  third->step({4, 64});  // makes the optimizer's state
  for (const ShapeKey& shape :
       {ShapeKey{4, 64}, ShapeKey{6, 80}, ShapeKey{4, 160}, ShapeKey{5, 200}, ShapeKey{1, 7}}) {
    expect_exact_step(*third, shape, 0.5);
  }
  EXPECT_EQ(third->learning_steps(), 0);
  EXPECT_EQ(third->controller().state(), ControllerState::kPlanning);
}

TEST(ModelPool, RanksOfAnEncoderAndDecoderShareWhatTheySee) {
  SyntheticSpec spec;
  spec.encoder_layers = 4;
  spec.decoder_layers = 3;
  spec.heads = 2;
  ModelPool pool;
  std::vector<std::unique_ptr<Process>> ranks;
  for (int i = 0; i < 4; ++i) ranks.push_back(std::make_unique<Process>(spec));
  for (int step = 0; step < 8; ++step) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto rank = static_cast<std::int64_t>(i);
      const ShapeKey shape{2 + rank, 32 + 24 * rank + 8 * (step % 3),
                           20 + 12 * ((rank + step) % 4)};
      ASSERT_TRUE(pool.observe(kFingerprint, ranks[i]->step(shape), "rank" + std::to_string(i)));
    }
  }
  const auto later = process_with(*pool.state(kFingerprint), spec);
  later->step({3, 48, 24});
  for (const ShapeKey& shape : {ShapeKey{2, 40, 32}, ShapeKey{5, 200, 90}, ShapeKey{7, 33, 150}}) {
    expect_exact_step(*later, shape, 0.4);
  }
}

TEST(ModelPool, FirstStepsOfManyRanksDoNotSpoilTheOptimizer) {
  // Each process's first step makes the optimizer's state: its optimizer segment is of no other
  // step. A large state and a small model make the optimizer the peak of a step at short lengths.
  SyntheticSpec spec;
  spec.width = 256;
  spec.vocabulary = 3000;
  ModelPool pool;
  std::vector<std::unique_ptr<Process>> ranks;
  for (int i = 0; i < 8; ++i) ranks.push_back(std::make_unique<Process>(spec));
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto rank = static_cast<std::int64_t>(i);
      const ShapeKey shape{1 + rank % 3, 16 + 8 * rank + step};
      ASSERT_TRUE(pool.observe(kFingerprint, ranks[i]->step(shape), "rank" + std::to_string(i)));
    }
  }
  const auto later = process_with(*pool.state(kFingerprint), spec);
  later->step({2, 16});
  expect_exact_step(*later, {1, 4}, 1.5);
  expect_exact_step(*later, {2, 40}, 1.5);
}

TEST(ModelPool, VersionRisesWithNewShapesOnly) {
  ModelPool pool;
  EXPECT_EQ(pool.version(kFingerprint), 0U);
  EXPECT_FALSE(pool.state(kFingerprint));
  Process process;
  EXPECT_TRUE(*pool.observe(kFingerprint, process.step({4, 64})));
  const std::uint64_t first = pool.version(kFingerprint);
  EXPECT_GT(first, 0U);
  StepRecord plain = process.step({4, 64});
  plain.profiles.reset();
  EXPECT_FALSE(*pool.observe(kFingerprint, plain));  // nothing was measured
  EXPECT_EQ(pool.version(kFingerprint), first);
  EXPECT_TRUE(*pool.observe(kFingerprint, process.step({4, 96})));
  const std::uint64_t second = pool.version(kFingerprint);
  EXPECT_GT(second, first);
  const StepRecord again = Process().step({4, 96});
  EXPECT_FALSE(*pool.observe(kFingerprint, again, "other"));
  EXPECT_FALSE(*pool.observe(kFingerprint, again, "other"));  // a shape that it knows
}

TEST(ModelPool, StatsTellWhatWasLearnedByWhom) {
  ModelPoolOptions options;
  options.now = [] { return std::string("2026-01-01T12:00:00Z"); };
  ModelPool pool(options);
  Process process;
  const StepRecord first = process.step({4, 64});
  const StepRecord second = process.step({4, 96});
  ASSERT_TRUE(pool.observe(kFingerprint, first, "a"));
  ASSERT_TRUE(pool.observe(kFingerprint, second, "a"));
  ASSERT_TRUE(pool.observe(kFingerprint, first, "b"));
  const auto stats = pool.stats();
  ASSERT_EQ(stats.size(), 1U);
  EXPECT_EQ(stats[0].fingerprint, kFingerprint);
  EXPECT_EQ(stats[0].recorded_steps, 3);
  EXPECT_EQ(stats[0].distinct_shapes, 2);
  EXPECT_EQ(stats[0].runs, 2);
  EXPECT_EQ(stats[0].updated_at, "2026-01-01T12:00:00Z");
  EXPECT_EQ(stats[0].bytes, static_cast<std::int64_t>(pool.state(kFingerprint)->size()));
  const auto json = nlohmann::json::parse(to_json(stats));
  EXPECT_EQ(json["models"][0]["fingerprint"], kFingerprint);
  EXPECT_EQ(json["models"][0]["runs"], 2);
  EXPECT_EQ(json["models"][0]["taught_by"], (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(nlohmann::json::parse(to_json(std::vector<ModelStats>{}))["models"].size(), 0U);
}

TEST(ModelPool, AdoptsAStateThatKnowsMoreAndNoOther) {
  ModelPool pool;
  Process little;
  little.step({4, 64});
  const auto much = taught_process();
  EXPECT_TRUE(*pool.adopt(kFingerprint, little.state(), "a"));
  EXPECT_TRUE(*pool.adopt(kFingerprint, much->state(), "b"));
  EXPECT_EQ(*pool.state(kFingerprint), much->state());
  const std::uint64_t version = pool.version(kFingerprint);
  EXPECT_FALSE(*pool.adopt(kFingerprint, little.state(), "c"));
  EXPECT_FALSE(*pool.adopt(kFingerprint, much->state(), "b"));
  EXPECT_EQ(*pool.state(kFingerprint), much->state());
  EXPECT_EQ(pool.version(kFingerprint), version);
}

TEST(ModelPool, TakesTheOptimizerFromAStateThatKnowsLess) {
  // The pool gets only what was recorded; when a process stops recording, its last optimizer step
  // waits for ever. The process's own state has it.
  SyntheticSpec spec;
  spec.width = 256;  // the optimizer is the peak of short steps
  ModelPool pool;
  std::string one_state;
  for (const std::int64_t batch : {1, 2, 3}) {
    Process process(spec);
    const std::string source = std::to_string(batch);
    for (const std::int64_t length : {16, 24, 40}) {
      const StepRecord record = process.step({batch, length});
      if (!record.profiles) continue;
      ASSERT_TRUE(pool.observe(kFingerprint, record, source));
    }
    one_state = process.state();
  }
  EXPECT_TRUE(*pool.adopt(kFingerprint, one_state, "3"));
  EXPECT_NE(*pool.state(kFingerprint), one_state);
  const auto later = process_with(*pool.state(kFingerprint), spec);
  later->step({2, 16});
  expect_exact_step(*later, {1, 4}, 1.5);
}

TEST(ModelPool, AnAdoptedStateLearnsOn) {
  ModelPool pool;
  Process first;
  for (const std::int64_t batch : {4, 5, 4}) first.step({batch, 64});
  ASSERT_TRUE(pool.adopt(kFingerprint, first.state(), "a"));
  Process second;
  for (const std::int64_t batch : {6, 3, 6}) {
    ASSERT_TRUE(pool.observe(kFingerprint, second.step({batch, 160}), "b"));
  }
  const auto third = process_with(*pool.state(kFingerprint));
  third->step({4, 64});
  expect_exact_step(*third, {5, 111}, 0.5);
}

TEST(ModelPool, LoadsWhatTheStoreKept) {
  const auto process = taught_process();
  ModelPool pool;
  ASSERT_TRUE(pool.load({kFingerprint, 0, 0, 0, 7, "2025-12-31T00:00:00Z"}, process->state()));
  const auto stats = pool.stats(kFingerprint);
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->runs, 7);
  EXPECT_EQ(stats->updated_at, "2025-12-31T00:00:00Z");
  EXPECT_GT(stats->distinct_shapes, 1);
  EXPECT_EQ(*pool.state(kFingerprint), process->state());
  EXPECT_FALSE(pool.stats("other"));
}

TEST(ModelPool, LearnsAnewWhenTheModelHasChanged) {
  // The same fingerprint, twice the bytes: what was known is wrong, and must not mix with the new.
  ModelPool pool;
  // A process records its first two steps.
  for (const std::int64_t batch : {4, 5, 6}) {
    Process before;
    for (const std::int64_t length : {64, 96, 128}) {
      ASSERT_TRUE(pool.observe(kFingerprint, before.step({batch, length + batch}), "before"));
    }
  }
  SyntheticSpec changed;
  changed.inventory_scale = 3;
  for (const std::int64_t batch : {5, 3}) {
    Process after(changed);
    for (const std::int64_t length : {64, 96, 128}) {
      ASSERT_TRUE(pool.observe(kFingerprint, after.step({batch, length + batch}), "after"));
    }
  }
  const auto later = process_with(*pool.state(kFingerprint), changed);
  later->step({4, 64});
  expect_exact_step(*later, {7, 200}, 0.5);
}

TEST(ModelPool, BoundsItsModelsByLeastRecentUse) {
  ModelPoolOptions options;
  options.max_models = 3;
  ModelPool pool(options);
  const StepRecord record = Process().step({4, 64});
  for (const char* name : {"f1", "f2", "f3"}) ASSERT_TRUE(pool.observe(name, record));
  EXPECT_TRUE(pool.state("f1"));  // used
  ASSERT_TRUE(pool.observe("f4", record));
  EXPECT_EQ(pool.stats().size(), 3U);
  EXPECT_TRUE(pool.state("f1"));
  EXPECT_FALSE(pool.state("f2"));
  EXPECT_TRUE(pool.state("f4"));
}

}  // namespace
}  // namespace pudica::daemon::testing
