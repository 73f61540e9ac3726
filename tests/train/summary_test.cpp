#include "train/summary.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "train/sample_run.h"

namespace pudica::train {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(SummaryTable, HasALineForEachPolicyInStraightColumns) {
  const auto table = summary_table(to_json(sample_run()));
  std::istringstream lines(table);
  std::string header;
  std::getline(lines, header);
  const auto column = header.find("vs none") + std::string("vs none").size();
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_GT(line.size(), column);
    EXPECT_EQ(line[column - 1], 'x') << line;
  }
  EXPECT_EQ(count, 3);
  EXPECT_THAT(table, HasSubstr("1.050x"));
  EXPECT_THAT(table, HasSubstr("99.5 %"));
}

TEST(SummaryTable, ShowsADashWhereNothingApplies) {
  auto run = sample_run();
  run.policies[1] = PolicyResult{};
  run.policies[1].name = "full";
  run.policies[1].status = PolicyStatus::kOom;
  const auto table = summary_table(to_json(run));
  EXPECT_THAT(table, HasSubstr("out of memory at step 0"));
  EXPECT_THAT(table, HasSubstr(" - "));
  EXPECT_THAT(table, Not(HasSubstr("null")));
}

TEST(Conclusion, SaysWhatItCostsAndWhetherTheBudgetHeld) {
  auto run = sample_run();
  const auto good = conclusion(to_json(run));
  EXPECT_THAT(good, HasSubstr("stayed within the budget at +5.0 %"));
  EXPECT_THAT(good, HasSubstr("recomputing every layer costs +30.0 %"));
  run.policies[2].rows[15].peak = Bytes(2001);
  EXPECT_THAT(conclusion(to_json(run)), HasSubstr("went over the budget"));
  run.policies[2].rows[15].peak = Bytes(2000);
  run.policies[2].rows[15].overrun = true;
  EXPECT_THAT(conclusion(to_json(run)), HasSubstr("went over the budget"));
}

// A budget that was changed while it ran: what was within it before stays so, and no budget is
// named that was not the one of the step.
TEST(Conclusion, JudgesEachStepByItsOwnBudget) {
  auto run = sample_run();
  for (std::size_t i = 10; i < 20; ++i) {
    run.policies[2].rows[i].budget = Bytes(1024);
    run.policies[2].rows[i].peak = Bytes(1000);
  }
  EXPECT_THAT(conclusion(to_json(run)),
              HasSubstr("With 2.0 KiB, 1.0 KiB from step 11 on, pudica stayed within the budget of "
                        "every step at +5.0 %"));
  run.policies[2].rows[15].peak = Bytes(1100);
  run.policies[2].rows[15].overrun = true;
  EXPECT_THAT(conclusion(to_json(run)), HasSubstr("pudica went over the budget in 1 of 20 steps"));
  for (std::size_t i = 0; i < 20; ++i) {
    auto& row = run.policies[2].rows[i];
    row.overrun = false;
    row.budget = Bytes(i % 2 == 0 ? 2048 : 3072);
  }
  EXPECT_THAT(conclusion(to_json(run)),
              HasSubstr("With 2.0 KiB, changed 19 times to 3.0 KiB at the end, pudica stayed"));
}

TEST(Conclusion, IsAboutThePolicyWithoutArgumentsWhereThereAreSeveral) {
  auto run = sample_run();
  auto other = run.policies[2];
  other.name = "pudica:menu=keep+full";
  other.rows[15].overrun = true;
  run.policies.insert(run.policies.begin() + 2, other);
  EXPECT_THAT(conclusion(to_json(run)), HasSubstr("stayed within the budget"));
  run.policies.pop_back();
  EXPECT_THAT(conclusion(to_json(run)), HasSubstr("went over the budget"));
}

TEST(Conclusion, IsHonestAboutRunsThatDidNotEnd) {
  auto run = sample_run();
  run.policies[2].status = PolicyStatus::kFailed;
  run.policies[2].detail = "the worker was killed";
  EXPECT_THAT(conclusion(to_json(run)), HasSubstr("did not finish"));
  EXPECT_THAT(conclusion(to_json(run)), HasSubstr("the worker was killed"));
  run.policies[2].status = PolicyStatus::kInterrupted;
  EXPECT_THAT(conclusion(to_json(run)), HasSubstr("interrupted"));
  run.policies.pop_back();
  EXPECT_THAT(conclusion(to_json(run)), HasSubstr("No policy pudica"));
}

TEST(Progress, FitsTheTerminal) {
  StepRow row;
  row.step = 9;
  row.loss = 2.5;
  row.peak = Bytes(1 << 20);
  row.budget = Bytes(2 << 20);
  for (const std::int64_t columns : {1, 20, 40, 80, 90, 200}) {
    EXPECT_LT(std::ssize(Progress::line("pudica", row, 40, columns)), columns);
  }
  const auto whole = Progress::line("pudica", row, 40, 0);
  EXPECT_THAT(whole, HasSubstr("step 10/40"));
  EXPECT_THAT(whole, HasSubstr("loss 2.500"));
  EXPECT_THAT(whole, HasSubstr("pudica"));
  EXPECT_THAT(whole, HasSubstr("50 %"));
}

TEST(Progress, PrintsPlainLinesNowAndThenWithoutATerminal) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = open_memstream(&text, &size);
  Progress progress(stream, 0, 1000);
  for (std::int64_t i = 0; i < 1000; ++i) {
    StepRow row;
    row.step = i;
    progress.show("none", row);
    progress.show("full", row);
  }
  progress.finish();
  std::fclose(stream);
  const std::string written(text, size);
  std::free(text);
  const auto lines = std::count(written.begin(), written.end(), '\n');
  EXPECT_GE(lines, 10);
  EXPECT_LE(lines, 25);
  EXPECT_THAT(written, Not(HasSubstr("\r")));
  EXPECT_THAT(written, Not(HasSubstr("\033")));
  EXPECT_THAT(written, HasSubstr("step 1000/1000"));
}

}  // namespace
}  // namespace pudica::train
