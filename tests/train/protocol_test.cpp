// Goal: a worker's end, whatever it is, is a value in the parent, and never a hang. Method: a
// scripted worker that misbehaves on command.
#include "train/protocol.h"

#include <chrono>
#include <cstdlib>
#include <signal.h>
#include <string>
#include <unistd.h>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "inspect/origin.h"

namespace pudica::train {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr std::chrono::seconds kLong{60};

WorkerProcess start_worker(WorkerStart start = {}) {
  start.program = PUDICA_SCRIPTED_WORKER;
  auto worker = WorkerProcess::start(start);
  EXPECT_TRUE(worker.has_value()) << worker.error().message;
  return *std::move(worker);
}

json command(const std::string& name) { return {{"cmd", name}}; }

TEST(WorkerProcess, AnswersCommandsInOrder) {
  auto worker = start_worker();
  for (int i = 0; i < 5; ++i) {
    const auto reply = worker.ask({{"cmd", "step"}, {"i", i}}, kLong);
    ASSERT_TRUE(reply.has_value()) << reply.error().message;
    EXPECT_EQ((*reply)["step"], i);
  }
  ASSERT_TRUE(worker.send(command("calibrate")).has_value());
  ASSERT_TRUE(worker.send(command("setup")).has_value());
  EXPECT_TRUE(worker.receive(kLong)->contains("floor_bytes"));
  EXPECT_TRUE(worker.receive(kLong)->contains("ok"));
  EXPECT_TRUE(worker.alive());
}

TEST(WorkerProcess, SaysHowAWorkerEnded) {
  const std::pair<const char*, const char*> cases[] = {{"crash", "signal 11"},
                                                       {"kill", "signal 9"},
                                                       {"exit", "exit code 7"},
                                                       {"half", "exit code 0"}};
  for (const auto& [behaviour, words] : cases) {
    auto worker = start_worker();
    const auto reply = worker.ask(command(behaviour), kLong);
    ASSERT_FALSE(reply.has_value()) << behaviour;
    EXPECT_EQ(reply.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(reply.error().message, HasSubstr(words));
    EXPECT_FALSE(worker.alive());
    EXPECT_THAT(worker.ending(), HasSubstr(words));
    EXPECT_FALSE(worker.send(command("setup")).has_value());
    EXPECT_FALSE(worker.receive(kLong).has_value());
  }
}

TEST(WorkerProcess, NoticesAWorkerThatDiesBeforeTheFirstCommand) {
  WorkerStart start;
  start.arguments = {"exit"};
  auto worker = start_worker(start);
  const auto reply = worker.receive(kLong);
  ASSERT_FALSE(reply.has_value());
  EXPECT_THAT(reply.error().message, HasSubstr("exit code 7"));
}

TEST(WorkerProcess, EndsAWorkerThatClosesItsEndAndLivesOn) {
  auto worker = start_worker();
  const auto reply = worker.ask(command("close"), kLong);
  ASSERT_FALSE(reply.has_value());
  EXPECT_THAT(reply.error().message, HasSubstr("signal 9"));
  EXPECT_FALSE(worker.alive());
}

TEST(WorkerProcess, RefusesWhatIsNoJson) {
  auto worker = start_worker();
  const auto reply = worker.ask(command("rubbish"), kLong);
  ASSERT_FALSE(reply.has_value());
  EXPECT_EQ(reply.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(reply.error().message, HasSubstr("this is no JSON"));
  EXPECT_FALSE(worker.alive());
}

TEST(WorkerProcess, TakesALongLineAndRefusesAnEndlessOne) {
  auto worker = start_worker();
  const auto reply = worker.ask(command("long"), kLong);
  ASSERT_TRUE(reply.has_value()) << reply.error().message;
  EXPECT_EQ(reply->get<std::string>().size(), 4'000'000U);
  const auto endless = worker.ask(command("endless"), kLong);
  ASSERT_FALSE(endless.has_value());
  EXPECT_EQ(endless.error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(worker.alive());
}

TEST(WorkerProcess, TimesOutAndStaysUsable) {
  auto worker = start_worker();
  const auto reply = worker.receive(std::chrono::milliseconds(1));
  ASSERT_FALSE(reply.has_value());
  EXPECT_EQ(reply.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(worker.alive());
  EXPECT_TRUE(worker.ask(command("setup"), kLong).has_value());
}

TEST(WorkerProcess, EndsASilentWorkerWhenItGoes) {
  auto worker = start_worker();
  ASSERT_TRUE(worker.send(command("silent")).has_value());
  worker.kill();
  EXPECT_FALSE(worker.alive());
  worker.kill();
  EXPECT_THAT(worker.ending(), HasSubstr("signal 9"));
}

TEST(WorkerProcess, MovesWithoutEndingTheWorker) {
  auto first = start_worker();
  auto second = std::move(first);
  EXPECT_FALSE(first.alive());  // NOLINT(bugprone-use-after-move): what is checked
  EXPECT_TRUE(second.ask(command("setup"), kLong).has_value());
  auto third = start_worker();
  third = std::move(second);
  EXPECT_TRUE(third.ask(command("setup"), kLong).has_value());
}

TEST(WorkerProcess, GivesTheWorkerItsEnvironment) {
  setenv("OMP_NUM_THREADS", "77", 1);
  setenv("PUDICA_TEST_INHERITED", "yes", 1);
  WorkerStart start;
  start.environment = worker_environment(3);
  auto worker = start_worker(start);
  const auto value = [&worker](const char* name) {
    return (*worker.ask({{"cmd", "environment"}, {"name", name}}, kLong))["value"]
        .get<std::string>();
  };
  EXPECT_EQ(value("OMP_NUM_THREADS"), "3");
  for (const auto& [name, expected] : measuring_environment()) {
    EXPECT_EQ(value(name.c_str()), expected);
  }
  EXPECT_EQ(value("PUDICA_TEST_INHERITED"), "yes");
  unsetenv("OMP_NUM_THREADS");
  unsetenv("PUDICA_TEST_INHERITED");
}

TEST(WorkerProcess, KeepsWorkersApart) {
  auto first = start_worker();
  auto second = start_worker();
  // If the second held the first's end, the first would not see its parent leave.
  first.kill();
  EXPECT_TRUE(second.ask(command("setup"), kLong).has_value());
  auto third = start_worker();
  EXPECT_FALSE(third.ask(command("exit"), kLong).has_value());
}

TEST(WorkerProcess, SaysWhatItCannotStart) {
  WorkerStart start;
  start.program = "/no/such/program";
  const auto worker = WorkerProcess::start(start);
  ASSERT_FALSE(worker.has_value());
  EXPECT_THAT(worker.error().message, HasSubstr("/no/such/program"));
}

TEST(LineStream, ReadsSeveralMessagesThatArriveAtOnce) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string text = "1\n{\"a\":[2]}\n\"th";
  ASSERT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  LineStream stream(ends[0], ends[1]);
  EXPECT_EQ(*stream.receive(kLong), json(1));
  EXPECT_EQ((*stream.receive(kLong))["a"][0], 2);
  EXPECT_FALSE(stream.receive(std::chrono::milliseconds(0)).has_value());
  EXPECT_TRUE(stream.timed_out());
  ASSERT_EQ(write(ends[1], "ree\"\n", 5), 5);
  EXPECT_EQ(*stream.receive(kLong), json("three"));
  close(ends[1]);
  EXPECT_FALSE(stream.receive(kLong).has_value());
  EXPECT_FALSE(stream.timed_out());
  close(ends[0]);
}

}  // namespace
}  // namespace pudica::train
