// Goal: the parent turns whatever its workers do into results and an exit code. Method: the
// scripted worker instead of a model; its behaviour is the policy's name.
#include "train/parent.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "train/stop_signals.h"

namespace pudica::train {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  json result;  // null: none written
  std::string table;
  std::string progress;
};

class MemoryFile {
 public:
  MemoryFile() : stream_(open_memstream(&text_, &size_)) {}
  ~MemoryFile() {
    std::fclose(stream_);
    std::free(text_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::FILE* stream() { return stream_; }
  std::string text() {
    std::fflush(stream_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* stream_;
};

Outcome run(const std::vector<std::string>& policies, std::function<bool()> stopping = nullptr,
            std::int64_t steps = 14) {
  const auto folder =
      std::filesystem::path(testing::TempDir()) /
      ("parent_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
  std::filesystem::remove_all(folder);
  TrainOptions options;
  options.data.path = default_text_path();
  options.steps = steps;
  options.policies = policies;
  options.budget.fraction = 0.5;
  options.out = folder.string();
  MemoryFile table;
  MemoryFile progress;
  ParentOptions parent;
  parent.worker_program = PUDICA_SCRIPTED_WORKER;
  if (stopping) parent.stopping = std::move(stopping);
  parent.table_stream = table.stream();
  parent.progress_stream = progress.stream();
  Outcome outcome;
  outcome.exit_code = run_parent(options, parent);
  std::ifstream file(folder / "result.json");
  if (file) outcome.result = json::parse(file);
  outcome.table = table.text();
  outcome.progress = progress.text();
  return outcome;
}

json policy_of(const Outcome& outcome, const std::string& name) {
  for (const auto& policy : outcome.result["policies"]) {
    if (policy["name"] == name) return policy;
  }
  ADD_FAILURE() << "no policy " << name;
  return json::object();
}

TEST(Parent, RunsEveryPolicyAndWritesTheResult) {
  const auto outcome = run({"none", "full", "pudica"});
  EXPECT_EQ(outcome.exit_code, 0);
  ASSERT_FALSE(outcome.result.is_null());
  EXPECT_EQ(outcome.result["budget_bytes"], 2000) << "halfway from 1000 to 3000";
  EXPECT_EQ(outcome.result["menu_floor_bytes"], 900);
  EXPECT_EQ(outcome.result["versions"]["torch"], "test");
  ASSERT_EQ(outcome.result["policies"].size(), 5U);
  EXPECT_EQ(outcome.result["policies"][1]["name"], "none (metered)");
  EXPECT_EQ(outcome.result["policies"][2]["name"], "none (capped)");
  for (const auto& policy : outcome.result["policies"]) {
    EXPECT_EQ(policy["status"], "ok");
    EXPECT_EQ(policy["steps"], 14);
  }
  EXPECT_NEAR(policy_of(outcome, "full")["time_vs_none"].get<double>(), 4.0 / 3, 1e-9);
  EXPECT_THAT(outcome.table, HasSubstr("pudica"));
  EXPECT_THAT(outcome.table, HasSubstr("report.html"));
}

TEST(Parent, APolicyThatRunsOutOfMemoryIsAResult) {
  const auto outcome = run({"none", "oom"});
  EXPECT_EQ(outcome.exit_code, 0);
  const auto policy = policy_of(outcome, "oom");
  EXPECT_EQ(policy["status"], "oom");
  EXPECT_EQ(policy["oom"], true);
  EXPECT_EQ(policy["steps"], 3);
  EXPECT_EQ(policy_of(outcome, "none")["steps"], 14) << "the others go on";
}

TEST(Parent, AWorkerThatDiesIsAFailure) {
  const auto outcome = run({"none", "dies"});
  EXPECT_EQ(outcome.exit_code, 1);
  const auto policy = policy_of(outcome, "dies");
  EXPECT_EQ(policy["status"], "failed");
  EXPECT_THAT(policy["detail"].get<std::string>(), HasSubstr("signal 9"));
  EXPECT_EQ(policy_of(outcome, "none")["status"], "ok");
}

TEST(Parent, AnUnknownPolicyIsAUsageError) {
  const auto outcome = run({"none", "unknown"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(outcome.result.is_null());
  EXPECT_THAT(outcome.progress, HasSubstr("'unknown' seen"));
}

TEST(Parent, AnInterruptedRunWritesWhatItHas) {
  int asked = 0;
  const auto outcome = run({"none", "pudica"}, [&asked] { return ++asked > 20; });
  EXPECT_EQ(outcome.exit_code, 130);
  ASSERT_FALSE(outcome.result.is_null());
  for (const auto& policy : outcome.result["policies"]) {
    EXPECT_EQ(policy["status"], "interrupted");
    EXPECT_GT(policy["steps"].get<int>(), 0);
    EXPECT_LT(policy["steps"].get<int>(), 14);
  }
}

TEST(Parent, StopsAfterASignal) {
  install_stop_signals();
  const auto outcome = run({"none", "interrupts"}, stop_requested);
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_EQ(policy_of(outcome, "interrupts")["steps"], 3) << "the step that was running ends";
}

TEST(Parent, DoesNotWaitForACalibrationOnceStopped) {
  TrainOptions options;
  options.data.path = default_text_path();
  options.out = testing::TempDir();
  MemoryFile progress;
  ParentOptions parent;
  parent.worker_program = PUDICA_SCRIPTED_WORKER;
  parent.worker_arguments = {"silent"};  // never answers
  parent.stopping = [] { return true; };
  parent.progress_stream = progress.stream();
  EXPECT_EQ(run_parent(options, parent), 130);
  EXPECT_THAT(progress.text(), HasSubstr("interrupted before the first step"));
}

TEST(Parent, RefusesDataItCannotUse) {
  TrainOptions options;
  options.data.path = "no/such/file";
  MemoryFile progress;
  ParentOptions parent;
  parent.worker_program = PUDICA_SCRIPTED_WORKER;
  parent.progress_stream = progress.stream();
  EXPECT_EQ(run_parent(options, parent), 2);
  EXPECT_THAT(progress.text(), HasSubstr("no/such/file"));
}

TEST(Parent, SaysWhenItCannotStartAWorker) {
  TrainOptions options;
  options.data.path = default_text_path();
  options.out = testing::TempDir();
  MemoryFile progress;
  ParentOptions parent;
  parent.worker_program = "/no/such/program";
  parent.progress_stream = progress.stream();
  EXPECT_EQ(run_parent(options, parent), 1);
  EXPECT_THAT(progress.text(), HasSubstr("/no/such/program"));
}

}  // namespace
}  // namespace pudica::train
