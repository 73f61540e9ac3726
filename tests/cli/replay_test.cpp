// Replays a recorded run of pudica-train (squad lengths, model mini, 30 steps).
#include "cli/replay.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/record_reader.h"
#include "config/config.h"

namespace pudica::cli {
namespace {

std::string fixture() {
  return std::string(std::getenv("PUDICA_SOURCE_DIR")) + "/tests/fixtures/record/squad_mini.jsonl";
}

std::vector<StepRecord> records_of(const std::string& path) {
  std::vector<StepRecord> records;
  auto reader = RecordReader::open(path);
  EXPECT_TRUE(reader.has_value());
  for (;;) {
    auto record = reader->next();
    if (!record) {
      ADD_FAILURE() << record.error().message;
      return records;
    }
    if (!*record) return records;
    records.push_back(std::move(**record));
  }
}

class ReplayTest : public testing::Test {
 protected:
  void SetUp() override {
    records = records_of(fixture());
    ASSERT_EQ(records.size(), 30U);
    for (const StepRecord& record : records) model.observe(record);
  }

  std::vector<ReplayedStep> replayed(const std::string& policy, std::optional<Bytes> budget = {}) {
    const auto spec = parse_policy_spec(policy);
    auto replay = Replay::start(*spec, options, model, budget);
    EXPECT_TRUE(replay.has_value()) << policy;
    std::vector<ReplayedStep> steps;
    for (const StepRecord& record : records) {
      auto step = replay->step(record);
      EXPECT_TRUE(step.has_value()) << policy << " step " << record.step;
      if (step) steps.push_back(std::move(*step));
    }
    return steps;
  }

  static ReplayTotals sum(const std::vector<ReplayedStep>& steps) {
    ReplayTotals totals;
    for (const ReplayedStep& step : steps) totals.add(step);
    return totals;
  }

  ControllerOptions options = compile_controller_options(Config{});
  RecordedModel model{options};
  std::vector<StepRecord> records;
};

TEST_F(ReplayTest, TheSamePolicyAndBudgetMakeTheRecordedPlans) {
  const auto steps = replayed("pudica");
  ASSERT_EQ(steps.size(), records.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].modes, modes_run(records[i])) << "step " << records[i].step;
    EXPECT_EQ(steps[i].predicted_bytes, records[i].predicted_bytes) << "step " << records[i].step;
    EXPECT_EQ(steps[i].peak_bytes, records[i].measured_bytes) << "step " << records[i].step;
    EXPECT_TRUE(steps[i].measured) << "step " << records[i].step;
  }
}

// The model of the whole record against what the meter saw in each of its steps.
TEST_F(ReplayTest, ThePeakModelIsThatOfTheMeasuredSteps) {
  StepStart start;
  for (const StepRecord& record : records) {
    start.follow(record);
    const auto costs = model.costs(record.key, false);
    ASSERT_TRUE(costs.has_value());
    const auto choice = choice_of(*costs, modes_run(record));
    ASSERT_TRUE(choice.has_value()) << record.step;
    const Bytes peak = start.base_bytes + Bytes(step_peak_bytes(*costs, *choice));
    const double measured = static_cast<double>(record.measured_bytes.count());
    EXPECT_NEAR(static_cast<double>(peak.count()) / measured, 1.0, 0.002) << record.step;
  }
}

TEST_F(ReplayTest, PoliciesOrderAsTheyMustInPeakAndTime) {
  const ReplayTotals none = sum(replayed("none"));
  const ReplayTotals full = sum(replayed("full"));
  const ReplayTotals pudica = sum(replayed("pudica"));
  const ReplayTotals oracle = sum(replayed("oracle"));
  EXPECT_GT(none.overruns, 0);
  EXPECT_EQ(none.revocations, 0);  // nothing to revoke: its kept layers are not ours
  EXPECT_EQ(none.extra_seconds, 0);
  EXPECT_LT(full.peak_bytes, pudica.peak_bytes);
  EXPECT_EQ(full.recomputed, full.layer_calls);
  EXPECT_GT(full.seconds, pudica.seconds);
  EXPECT_LE(pudica.peak_bytes, records[0].budget_bytes);
  EXPECT_LE(oracle.peak_bytes, records[0].budget_bytes);
  EXPECT_LE(oracle.extra_seconds, pudica.extra_seconds * 1.001);
}

TEST_F(ReplayTest, EveryPolicyCanBeReplayedThatNeedsWhatARecordTells) {
  for (const std::string& name : policy_names()) {
    if (name == "sac" || name == "dtr") continue;
    EXPECT_EQ(sum(replayed(name)).steps, 30) << name;
  }
}

TEST_F(ReplayTest, WhatARecordDoesNotTellIsRefused) {
  for (const std::string text : {"sac:save=gelu", "dtr:h=lru"}) {
    const auto replay = Replay::start(*parse_policy_spec(text), options, model, {});
    ASSERT_FALSE(replay.has_value());
    EXPECT_EQ(replay.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(replay.error().message.find(text + ": a record does not tell"), std::string::npos)
        << replay.error().message;
  }
}

TEST_F(ReplayTest, MimoseMeasuresItsWarmUpAndThenPlans) {
  const auto steps = replayed("mimose");
  EXPECT_EQ(sum(steps).learning_steps, 10);
  const auto all_full = [](const ReplayedStep& step) {
    return std::ranges::count(step.modes, Mode::full()) == 4;
  };
  EXPECT_TRUE(std::all_of(steps.begin(), steps.begin() + 10, all_full));
  EXPECT_FALSE(std::all_of(steps.begin() + 10, steps.end(), all_full));
}

TEST_F(ReplayTest, ATighterBudgetIsHeldByRevocationOrPlan) {
  const auto range = model.range();
  ASSERT_TRUE(range.has_value());
  const Bytes budget = range->floor_bytes + Bytes(1 << 20);
  for (const char* policy : {"reactive", "pudica"}) {
    const ReplayTotals totals = sum(replayed(policy, budget));
    EXPECT_EQ(totals.overruns, 0) << policy;
    EXPECT_LE(totals.peak_bytes, budget) << policy;
  }
  EXPECT_GT(sum(replayed("reactive", budget)).revocations,
            sum(replayed("pudica", budget)).revocations);
}

TEST_F(ReplayTest, BelowTheFloorIsAnOverrun) {
  const auto range = model.range();
  ASSERT_TRUE(range.has_value());
  const ReplayTotals totals = sum(replayed("pudica", Bytes(range->floor_bytes.count() / 2)));
  EXPECT_GT(totals.overruns, 0);
}

// A run that began from a learned state: few profiles, and no live bytes in older records.
class PooledReplayTest : public ReplayTest {
 protected:
  static constexpr std::size_t kLearnt = 26;  // the first steps, as if they were another run's

  void SetUp() override {
    ReplayTest::SetUp();
    records.erase(records.begin(), records.begin() + kLearnt);
    few = std::make_unique<RecordedModel>(options);
    for (const StepRecord& record : records) few->observe(record);
  }

  // Steps that were replayed; the reasons of the others.
  std::pair<std::vector<ReplayedStep>, std::vector<std::string>> replay_of(
      const std::string& policy) {
    auto replay = Replay::start(*parse_policy_spec(policy), options, *few, std::nullopt);
    EXPECT_TRUE(replay.has_value());
    std::pair<std::vector<ReplayedStep>, std::vector<std::string>> out;
    for (const StepRecord& record : records) {
      auto step = replay->step(record);
      if (step) {
        out.first.push_back(std::move(*step));
      } else {
        out.second.push_back(step.error().message);
      }
    }
    return out;
  }

  std::unique_ptr<RecordedModel> few;
};

TEST_F(PooledReplayTest, WhatDoesNotFollowFromTheRecordIsNoOverrunAndSaysWhy) {
  for (const char* policy : {"pudica", "none", "full"}) {
    const auto [steps, reasons] = replay_of(policy);
    EXPECT_EQ(steps.size() + reasons.size(), records.size()) << policy;
    EXPECT_FALSE(reasons.empty()) << policy;
    for (const ReplayedStep& step : steps) {
      EXPECT_FALSE(step.overrun) << policy << " step " << step.step;
      EXPECT_TRUE(step.seconds.has_value()) << policy << " step " << step.step;
    }
  }
}

// The step's own times stand for what no profile tells.
TEST_F(ReplayTest, AStepThatTellsItsRecomputeHasATime) {
  StepRecord record = records[28];
  ASSERT_FALSE(record.profiles.has_value());
  record.recompute_seconds = record.seconds / 4;
  const ReplayedStep recorded = recorded_step(record, model);
  EXPECT_EQ(recorded.extra_seconds, record.seconds / 4);
  record.recompute_seconds.reset();
  record.modes.assign(4, Mode::selective(7));
  const ReplayedStep unknown = recorded_step(record, model);
  EXPECT_EQ(unknown.extra_seconds, std::nullopt) << "it ran modes that no profile tells of";
  ReplayTotals totals;
  totals.add(recorded);
  totals.add(unknown);
  EXPECT_EQ(totals.steps, 2);
  EXPECT_EQ(totals.timed_steps, 1);
  EXPECT_EQ(totals.seconds, record.seconds) << "no step counts as 0 s";
}

TEST_F(ReplayTest, ALayerInPartIsRecomputedAndOneOffloadedIsNot) {
  StepRecord record = records[28];
  record.modes = {Mode::keep(), Mode::selective(0), Mode::offload(), Mode::full()};
  EXPECT_EQ(recorded_step(record, model).recomputed, 2);
}

TEST_F(ReplayTest, AModelThatIsOffTheRecordedStepTellsNothingOfAnotherPlan) {
  auto replay = Replay::start(*parse_policy_spec("full"), options, model, std::nullopt);
  ASSERT_TRUE(replay.has_value());
  StepRecord record = records.front();
  record.measured_bytes = record.measured_bytes + Bytes(record.measured_bytes.count() / 10);
  record.modes.assign(4, Mode::keep());
  const auto step = replay->step(record);
  ASSERT_FALSE(step.has_value());
  EXPECT_THAT(step.error().message, testing::HasSubstr("% off what the measured layers add up to"));
}

TEST(RecordReader, NamesFileAndLineOfABadLine) {
  const std::string path = testing::TempDir() + "/bad.jsonl";
  std::ofstream(path) << "\n{\"schema\":\"pudica.step/1\"}\n";
  auto reader = RecordReader::open(path);
  ASSERT_TRUE(reader.has_value());
  const auto record = reader->next();
  ASSERT_FALSE(record.has_value());
  EXPECT_THAT(record.error().message, testing::StartsWith(path + ":2: step record"));
}

TEST(RecordReader, TakesALastLineThatWasCutOffForTheEnd) {
  std::ifstream in(fixture());
  std::string first;
  std::getline(in, first);
  const std::string path = testing::TempDir() + "/cut.jsonl";
  std::ofstream(path) << first << '\n' << first.substr(0, 100);
  auto reader = RecordReader::open(path);
  ASSERT_TRUE(reader.has_value());
  auto record = reader->next();
  ASSERT_TRUE(record.has_value() && record->has_value());
  EXPECT_FALSE(reader->truncated());
  record = reader->next();
  ASSERT_TRUE(record.has_value());
  EXPECT_FALSE(record->has_value());
  EXPECT_TRUE(reader->truncated());
}

TEST(RecordReader, RefusesAFolderAndAMissingFile) {
  EXPECT_THAT(RecordReader::open(testing::TempDir()).error().message, testing::HasSubstr("folder"));
  EXPECT_EQ(RecordReader::open("/nonexistent/x").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace pudica::cli
