#include "train/results.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/sample_run.h"
#include "train/statistics.h"

namespace pudica::train {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json summary_of(const PolicyResult& policy) {
  const auto reference = sample_policy({"none", 1.0, 3500});
  return summarize(policy, &reference, Bytes(2000));
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Statistics, OrderStatistics) {
  EXPECT_EQ(median({}), std::nullopt);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(quantile({5}, 0.99), 5);
  EXPECT_EQ(quantile({1, 2, 3, 4}, 0.5), 2);
  EXPECT_EQ(quantile({1, 2, 3, 4}, 0.51), 3);
  EXPECT_EQ(quantile({4, 3, 2, 1}, 1.0), 4);
  EXPECT_EQ(mean({1, 2, 6}), 3);
  EXPECT_EQ(mean({}), std::nullopt);
}

TEST(StepRow, SurvivesTheWayThroughJson) {
  StepRow row;
  row.step = 7;
  row.shape = "4x512";
  row.seconds = 0.25;
  row.cpu_seconds = 0.5;
  row.handle_seconds = 0.24;
  row.recompute_seconds = 0.125;
  row.loss = 3.5;
  row.peak = Bytes(1LL << 40);
  row.predicted = Bytes(11);
  row.bound = true;
  row.budget = Bytes(12);
  row.base = Bytes(13);
  row.revocations = 2;
  row.overrun = true;
  row.recomputed_layers = 3;
  row.layer_calls = 8;
  row.plan_ns = 1234;
  row.cache_hit = true;
  row.learning = true;
  const auto back = step_row_from_json(json::parse(to_json(row).dump()));
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(to_json(*back), to_json(row));
  EXPECT_EQ(back->peak, row.peak);
  EXPECT_EQ(back->cache_hit, true);
  EXPECT_EQ(back->recompute_seconds, 0.125);
}

TEST(StepRow, CarriesALossThatIsNoNumber) {
  StepRow row;
  row.loss = std::nan("");
  const auto back = step_row_from_json(json::parse(to_json(row).dump()));
  ASSERT_TRUE(back.has_value());
  EXPECT_TRUE(std::isnan(back->loss));
  EXPECT_EQ(back->cache_hit, std::nullopt);
}

TEST(StepRow, NamesAFieldThatIsMissingOrWrong) {
  const auto whole = to_json(StepRow{});
  for (const auto& [name, value] : whole.items()) {
    if (name == "loss" || name == "cache_hit" || name == "recompute_seconds") continue;
    auto missing = whole;
    missing.erase(name);
    auto wrong = whole;
    wrong[name] = json::array();
    for (const auto& broken : {missing, wrong}) {
      const auto row = step_row_from_json(broken);
      ASSERT_FALSE(row.has_value()) << name;
      EXPECT_THAT(row.error().message, HasSubstr(name));
    }
  }
  EXPECT_FALSE(step_row_from_json(json::array()).has_value());
}

TEST(Summarize, ComparesTheStepsAfterTheTenth) {
  auto policy = sample_policy({"pudica", 1.2, 1500});
  for (int i = 0; i < 10; ++i) policy.rows[i].seconds = 100;
  const auto out = summary_of(policy);
  EXPECT_NEAR(out["time_vs_none"].get<double>(), 1.2, 1e-12);
  EXPECT_NEAR(out["cpu_time_vs_none"].get<double>(), 1.2, 1e-12);
  EXPECT_NEAR(out["warmup_overhead_steps"].get<double>(), 990, 1e-9);
  EXPECT_DOUBLE_EQ(out["step_seconds_median"], (1.2 + 100) / 2);
  EXPECT_EQ(out["peak_bytes"], 1500);
  EXPECT_DOUBLE_EQ(out["budget_used"], 0.75);
  EXPECT_EQ(out["steps"], 20);
  EXPECT_EQ(out["status"], "ok");
  EXPECT_EQ(out["oom"], false);
}

TEST(Summarize, ComparesTheStepsThatBothHaveRun) {
  auto policy = sample_policy({"pudica", 2.0, 1500, 15});
  policy.status = PolicyStatus::kInterrupted;
  EXPECT_NEAR(summary_of(policy)["time_vs_none"].get<double>(), 2.0, 1e-12);
}

TEST(Summarize, WhatDoesNotApplyIsNull) {
  const auto none_left = summary_of(PolicyResult{});
  for (const auto* name :
       {"step_seconds_median", "time_vs_none", "cpu_time_vs_none", "warmup_overhead_steps",
        "peak_bytes", "budget_used", "recomputed_share", "plan_us", "cache", "prediction",
        "params_sha256", "loss_first", "loss_last"}) {
    ASSERT_TRUE(none_left.contains(name)) << name;
    EXPECT_TRUE(none_left[name].is_null()) << name;
  }
  EXPECT_TRUE(summary_of(sample_policy({"pudica", 1, 1, 10}))["time_vs_none"].is_null())
      << "no step after the tenth";
  EXPECT_TRUE(summarize(sample_policy({"pudica"}), nullptr, Bytes(1))["time_vs_none"].is_null());
  auto dead = sample_policy({"full"});
  dead.status = PolicyStatus::kOom;
  EXPECT_TRUE(summary_of(dead)["time_vs_none"].is_null());
  EXPECT_EQ(summary_of(dead)["oom"], true);
}

TEST(Summarize, CountsWhatHappened) {
  auto policy = sample_policy({"pudica"});
  policy.rows[0].learning = true;
  policy.rows[3].revocations = 2;
  policy.rows[4].revocations = 1;
  policy.rows[4].overrun = true;
  policy.rows[5].recomputed_layers = 8;
  policy.rows[6].recomputed_layers = 8;
  const auto out = summary_of(policy);
  EXPECT_EQ(out["warmup_steps"], 1);
  EXPECT_EQ(out["revocations"], 3);
  EXPECT_EQ(out["revoked_steps"], 2);
  EXPECT_EQ(out["overruns"], 1);
  EXPECT_DOUBLE_EQ(out["recomputed_calls_share"], 0.1);
  EXPECT_TRUE(out["recomputed_share"].is_null()) << "no step told what it took";
  EXPECT_NEAR(out["loss_first"].get<double>(), 5 - 0.45, 1e-12);
  EXPECT_NEAR(out["loss_last"].get<double>(), 5 - 1.45, 1e-12);
}

TEST(Summarize, TheRecomputedShareIsOfTheTimeOfSteps) {
  auto policy = sample_policy({"pudica", 100.0});
  for (auto& row : policy.rows) row.handle_seconds = 2.0;
  policy.rows[0].recompute_seconds = 1.0;
  policy.rows[1].recompute_seconds = 0.0;
  policy.rows[2].recomputed_layers = 8;  // and does not say for how long
  EXPECT_DOUBLE_EQ(summary_of(policy)["recomputed_share"], 0.25);
}

TEST(Summarize, APeakIsJudgedByTheBudgetOfItsOwnStep) {
  auto policy = sample_policy({"pudica", 1.0, 1900});
  for (std::size_t i = 10; i < policy.rows.size(); ++i) {
    policy.rows[i].budget = Bytes(1000);
    policy.rows[i].peak = Bytes(990);
  }
  const auto out = summary_of(policy);
  EXPECT_DOUBLE_EQ(out["budget_used"], 0.99);
  EXPECT_EQ(out["budgets"], json::parse(R"([{"step":0,"budget_bytes":2000},
                                            {"step":10,"budget_bytes":1000}])"));
}

TEST(Summarize, MeasuresPredictionAgainstTheMeasuredPeak) {
  auto policy = sample_policy({"pudica", 1, 1000});
  policy.rows[0].predicted = Bytes(900);   // 10 % under
  policy.rows[1].predicted = Bytes(1200);  // 20 % over
  policy.rows[2].predicted = Bytes(1000);
  const auto prediction = summary_of(policy)["prediction"];
  EXPECT_NEAR(prediction["mean_abs_rel"].get<double>(), 0.1, 1e-12);
  EXPECT_NEAR(prediction["p99_under"].get<double>(), 0.1, 1e-12);
  EXPECT_NEAR(prediction["max_under"].get<double>(), 0.1, 1e-12);
}

TEST(Summarize, SaysWhichStepsTellNothingOfPrediction) {
  auto policy = sample_policy({"pudica", 1, 1000, 20});
  for (std::size_t i = 0; i < policy.rows.size(); ++i) {
    auto& row = policy.rows[i];
    row.learning = i < 4;
    row.bound = i >= 4 && i < 7;
    if (i >= 9) row.predicted = Bytes(1000);
  }
  policy.rows[12].revocations = 2;
  const auto prediction = summary_of(policy)["prediction"];
  EXPECT_EQ(prediction["steps"], 11);
  EXPECT_EQ(prediction["revoked"], 1);
  EXPECT_EQ(prediction["left_out"], (json{{"learning", 4}, {"bound", 3}, {"unplanned", 2}}));
}

TEST(Summarize, CountsLeftOutStepsWhereNoneIsPredicted) {
  auto policy = sample_policy({"pudica", 1, 1000, 3});
  policy.rows[1].bound = true;
  const auto prediction = summary_of(policy)["prediction"];
  EXPECT_EQ(prediction["steps"], 0);
  EXPECT_TRUE(prediction["mean_abs_rel"].is_null());
  EXPECT_EQ(prediction["left_out"]["bound"], 1);
  EXPECT_TRUE(summary_of(sample_policy({"none"}))["prediction"].is_null());
}

TEST(Summarize, TellsTheSpread) {
  auto policy = sample_policy({"pudica", 1, 1000, 50});
  for (std::size_t i = 0; i < policy.rows.size(); ++i) {
    policy.rows[i].seconds = static_cast<double>(i + 1);
    policy.rows[i].cpu_seconds = 2 * static_cast<double>(i < 10 ? 1000 : i - 9);
  }
  auto reference = sample_policy({"none", 1, 1000, 50});
  const auto out = summarize(policy, &reference, Bytes(2000));
  EXPECT_EQ(out["step_seconds_quartiles"], (json{13.0, 38.0}));
  EXPECT_EQ(out["cpu_time_vs_none_quartiles"], (json{10.0, 30.0}));
}

TEST(Summarize, SeparatesPlanTimesOfHitsAndMisses) {
  auto policy = sample_policy({"pudica"});
  for (std::size_t i = 0; i < policy.rows.size(); ++i) {
    auto& row = policy.rows[i];
    row.learning = i < 2;
    row.cache_hit = i >= 10;
    row.plan_ns = row.learning ? 1'000'000 : i >= 10 ? 500 : 60'000;
  }
  const auto plan = summary_of(policy)["plan_us"];
  EXPECT_EQ(plan["hits"], 10);
  EXPECT_EQ(plan["misses"], 8);
  EXPECT_DOUBLE_EQ(plan["hit_p50"], 0.5);
  EXPECT_DOUBLE_EQ(plan["miss_p50"], 60);
  EXPECT_DOUBLE_EQ(plan["miss_p99"], 60);
}

TEST(ResultJson, HasEveryDocumentedField) {
  const auto out = to_json(sample_run());
  EXPECT_EQ(out["schema"], "pudica.result/1");
  for (const auto* name : {"revision", "modified", "date", "command", "environment", "machine",
                           "versions", "seed", "data", "model", "budget_bytes", "floor_bytes",
                           "menu_floor_bytes", "keep_all_bytes", "steps"}) {
    EXPECT_TRUE(out.contains(name)) << name;
  }
  EXPECT_EQ(out["command"], "pudica-train --steps 20");
  ASSERT_EQ(out["policies"].size(), 3U);
  for (const auto* name : {"name",
                           "status",
                           "steps",
                           "step_seconds_median",
                           "time_vs_none",
                           "cpu_time_vs_none",
                           "warmup_steps",
                           "warmup_overhead_steps",
                           "peak_bytes",
                           "budget_used",
                           "oom",
                           "overruns",
                           "revocations",
                           "revoked_steps",
                           "recomputed_share",
                           "plan_us",
                           "cache",
                           "prediction",
                           "params_sha256",
                           "loss_first",
                           "loss_last"}) {
    EXPECT_TRUE(out["policies"][2].contains(name)) << name;
  }
  EXPECT_NEAR(out["policies"][2]["time_vs_none"].get<double>(), 1.05, 1e-9);
  EXPECT_TRUE(out["menu_floor_bytes"].is_null());
}

TEST(ReferenceOf, IsNoneWithoutACap) {
  RunResult run;
  run.policies = {sample_policy({kCappedName}), sample_policy({"full"})};
  EXPECT_EQ(reference_of(run), nullptr);
  run.policies.push_back(sample_policy({"none"}));
  EXPECT_EQ(reference_of(run), &run.policies[2]);
}

TEST(StepsCsv, HasALineForEachStepAndQuotesNames) {
  auto run = sample_run();
  run.policies[1].name = "odd,\"name\"";
  const auto csv = steps_csv(run);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 61);
  EXPECT_THAT(csv, testing::StartsWith("policy,step,shape,seconds,"));
  EXPECT_THAT(csv, HasSubstr("\n\"odd,\"\"name\"\"\",0,4x100,"));
  const auto header = csv.substr(0, csv.find('\n'));
  const auto line =
      csv.substr(header.size() + 1, csv.find('\n', header.size() + 1) - header.size());
  EXPECT_EQ(std::count(header.begin(), header.end(), ','),
            std::count(line.begin(), line.end(), ','));
}

TEST(FileNameOf, KeepsNamesReadable) {
  EXPECT_EQ(file_name_of("pudica"), "pudica");
  EXPECT_EQ(file_name_of("pudica:menu=keep+full"), "pudica_menu=keep+full");
  EXPECT_EQ(file_name_of("none (capped)"), "none_capped");
  EXPECT_EQ(file_name_of("../x"), ".._x");
  EXPECT_EQ(file_name_of("::"), "policy");
}

TEST(WriteResults, WritesIntoAFolderThatHoldsFiles) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "pudica_results" / "deep";
  std::filesystem::remove_all(folder);
  auto run = sample_run();
  run.policies[2].plans = json::array({{{"shape", "4x100"}, {"modes", {"keep"}}}});
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto outcome = write_results(run, folder.string());
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
  }
  EXPECT_EQ(json::parse(read_file(folder / "result.json"))["schema"], "pudica.result/1");
  EXPECT_EQ(json::parse(read_file(folder / "plans-pudica.json"))["plans"][0]["shape"], "4x100");
  EXPECT_EQ(read_file(folder / "steps.csv"), steps_csv(run));
  EXPECT_THAT(read_file(folder / "report.html"), HasSubstr("</html>"));
  const auto files = std::distance(std::filesystem::directory_iterator(folder), {});
  EXPECT_EQ(files, 4) << "nothing partial is left";
  const auto failed = write_results(run, (folder / "steps.csv" / "x").string());
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message, HasSubstr("steps.csv"));
}

}  // namespace
}  // namespace pudica::train
