#include "daemon/api.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/assets.h"
#include "daemon/daemon_parts.h"
#include "daemon/routes.h"

namespace pudica::daemon {
namespace {

using inspect::Json;
using testing::HasSubstr;

std::string code_of(const ApiReply& reply) {
  return Json::parse(reply.body).at("error").at("code").get<std::string>();
}

struct ApiTest : testing::Test {
  DaemonParts daemon;

  std::string add(RunDescription run) {
    const Json answer = daemon.json("POST", "/v1/runs", pudica::to_json(run));
    return answer.at("id").get<std::string>();
  }
  void send(const std::string& id, std::vector<RunEvent> events) {
    const std::string body = pudica::to_json(EventBatch{0, std::move(events)});
    ASSERT_EQ(daemon.ask("POST", "/v1/runs/" + id + "/events", body).status, 200);
  }
};

TEST_F(ApiTest, RoutesAreThoseOfTheOpenApiDocument) {
  std::set<std::string> documented;
  const Json document = Json::parse(openapi_document());
  for (const auto& [path, operations] : document.at("paths").items()) {
    for (const auto& [method, operation] : operations.items()) {
      std::string upper = method;
      for (char& letter : upper) letter = static_cast<char>(std::toupper(letter));
      documented.insert(upper + " " + path);
    }
  }
  std::set<std::string> served;
  for (const Route& route : routes()) {
    served.insert(std::string(route.method) + " " + std::string(route.path));
  }
  EXPECT_EQ(served, documented);
}

TEST(MatchPath, TakesWhatStandsInBraces) {
  using testing::ElementsAre;
  using testing::Optional;
  EXPECT_THAT(match_path("/v1/runs/{id}/plans", "/v1/runs/a%2Fb/plans"),
              Optional(ElementsAre("a/b")));
  EXPECT_THAT(match_path("/assets/{path}", "/assets/deep/file.js"),
              Optional(ElementsAre("deep/file.js")));
  EXPECT_THAT(match_path("/", "/"), Optional(testing::IsEmpty()));
  EXPECT_EQ(match_path("/v1/runs/{id}", "/v1/runs/"), std::nullopt);
  EXPECT_EQ(match_path("/v1/runs/{id}", "/v1/runs/a/b"), std::nullopt);
  EXPECT_EQ(match_path("/v1/runs", "/v1/runs/"), std::nullopt);
}

TEST_F(ApiTest, UnknownPathsAndMethodsAreTold) {
  EXPECT_EQ(code_of(daemon.ask("GET", "/v2/runs")), "not_found");
  const ApiReply reply = daemon.ask("DELETE", "/v1/runs");
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(code_of(reply), "method_not_allowed");
  EXPECT_THAT(reply.body, HasSubstr("GET, POST"));
}

TEST_F(ApiTest, OverTcpOnlyReads) {
  const std::string body = pudica::to_json(described("a"));
  EXPECT_EQ(daemon.ask("POST", "/v1/runs", body, Transport::kTcp).status, 403);
  EXPECT_EQ(daemon.ask("PUT", "/v1/groups/g", R"({"total":1})", Transport::kTcp).status, 403);
  EXPECT_EQ(daemon.ask("GET", "/v1/runs", {}, Transport::kTcp).status, 200);
  const ApiReply unread = daemon.ask("GET", "/v1/runs/a/events", {}, Transport::kTcp);
  EXPECT_EQ(unread.status, 405);
  EXPECT_THAT(unread.body, HasSubstr("GET on /v1/runs/a/events, expected POST"));
}

TEST_F(ApiTest, ProtocolsThatDoNotMeetAreNamed) {
  RunDescription run = described("a");
  run.protocol = 9;
  run.protocol_min = 8;
  const ApiReply reply = daemon.ask("POST", "/v1/runs", pudica::to_json(run));
  EXPECT_EQ(reply.status, 426);
  EXPECT_EQ(code_of(reply), "protocol");
  EXPECT_THAT(reply.body, HasSubstr("8 to 9"));
  EXPECT_THAT(reply.body, HasSubstr("1 to 1"));
  run.protocol_min = 1;  // speaks ours too
  EXPECT_EQ(daemon.ask("POST", "/v1/runs", pudica::to_json(run)).status, 201);
}

// A restart begins with the database alone.
TEST(ApiAfterARestart, ALostRunKeepsWhatItLearned) {
  const ScratchFolder folder;
  SnapshotEvent snapshot;
  snapshot.snapshot =
      R"({"state":"planning","plans":[{"key":"batch=12,source=384"}],"learned":[{"quantity":"q"}],)"
      R"("structure":{"classes":["encoder"]},"counters":{"steps":9}})";
  std::string id;
  {
    DaemonParts daemon(folder.file("kept.db"));
    id = daemon.json("POST", "/v1/runs", pudica::to_json(described("train"))).at("id");
    const EventBatch batch{0, {step_event(1, 550), snapshot}};
    ASSERT_EQ(daemon.ask("POST", "/v1/runs/" + id + "/events", pudica::to_json(batch)).status, 200);
    daemon.time.pass(11);
    daemon.api.tick();  // and then it is killed
  }
  const auto expect_kept = [&id](DaemonParts& daemon) {
    const Json run = daemon.json("GET", "/v1/runs/" + id);
    EXPECT_EQ(run.at("state"), "lost");
    EXPECT_EQ(run.at("learned").size(), 1U);
    EXPECT_EQ(run.at("structure").at("classes").size(), 1U);
    EXPECT_EQ(run.at("counters").at("steps"), 9);
    EXPECT_EQ(daemon.json("GET", "/v1/runs/" + id + "/plans").at("plans").size(), 1U);
  };
  {
    DaemonParts daemon(folder.file("kept.db"));
    expect_kept(daemon);
    // It comes back, and is lost before it has told anything anew.
    RunDescription again = described("train");
    again.resume = id;
    ASSERT_EQ(daemon.json("POST", "/v1/runs", pudica::to_json(again)).at("id"), id);
    daemon.time.pass(100);
    daemon.api.tick();
    expect_kept(daemon);
  }
  DaemonParts daemon(folder.file("kept.db"));
  expect_kept(daemon);
}

TEST_F(ApiTest, WhatIsLargeOfALiveRunIsNotWrittenWheneverItIsSaved) {
  const std::string id = add(described("train"));
  SnapshotEvent snapshot;
  const auto told = [&](int number) {
    snapshot.snapshot =
        R"({"state":"planning","plans":[{"key":")" + std::to_string(number) + "\"}]}";
    send(id, {snapshot});
  };
  const auto kept = [&] {
    (void)daemon.archive->remove_ended(0);  // writes what waits
    return daemon.archive->plans(id).value().at("plans").at(0).at("key").get<std::string>();
  };
  std::set<std::string> written;
  for (int save = 0; save < 12; ++save) {
    told(save);
    daemon.time.pass(11);
    daemon.api.tick();
    written.insert(kept());
  }
  EXPECT_EQ(written.size(), 3U) << "the first, and two in two minutes";
  told(12);
  daemon.api.save_all();
  EXPECT_EQ(kept(), "12");
}

TEST_F(ApiTest, TheLongestShapesAreTold) {
  const std::string id = add(described("train"));
  const auto at = [](ShapeKey key) {
    StepEvent event = step_event(1, 550);
    event.record.key = key;
    return event;
  };
  send(id, {at({12, 300}), at({4, 512}), at({12, 384}), at({4, 100}), at({12, 384})});
  const Json run = daemon.json("GET", "/v1/runs/" + id);
  EXPECT_EQ(run.at("longest_keys"), Json::array({"batch=4,source=512", "batch=12,source=384"}));
}

TEST_F(ApiTest, RunIsListedWithEveryDocumentedField) {
  const std::string id = add(described("train"));
  send(id, {step_event(1, 550)});
  const Json listed = daemon.json("GET", "/v1/runs");
  ASSERT_EQ(listed.at("runs").size(), 1U);
  const Json document = Json::parse(openapi_document());
  const Json& schema = document.at("components").at("schemas");
  for (const auto& field : schema.at("Run").at("required")) {
    EXPECT_TRUE(listed["runs"][0].contains(field.get<std::string>())) << field;
  }
  EXPECT_EQ(listed["runs"][0].size(), schema["Run"]["properties"].size());
  for (const auto& field : schema.at("Step").at("required")) {
    EXPECT_TRUE(listed["runs"][0]["last"].contains(field.get<std::string>())) << field;
  }
  EXPECT_EQ(listed["runs"][0]["started_at"], "2026-01-01T12:00:00Z");
}

TEST_F(ApiTest, RunsAreFoundByIdAndByUniqueName) {
  const std::string id = add(described("train"));
  EXPECT_EQ(daemon.json("GET", "/v1/runs/train").at("id"), id);
  EXPECT_EQ(daemon.json("GET", "/v1/runs/" + id).at("name"), "train");
  add(described("train"));
  const ApiReply both = daemon.ask("GET", "/v1/runs/train");
  EXPECT_EQ(both.status, 400);
  EXPECT_THAT(both.body, HasSubstr(id));
  EXPECT_EQ(daemon.ask("GET", "/v1/runs/none").status, 404);
}

TEST_F(ApiTest, ABudgetThatFollowsTheRunsBatchesSaysItsFractionUntilAnOperatorSetsBytes) {
  RunDescription about = described("train");
  about.budget_fraction = 0.4;
  const std::string id = add(about);
  EXPECT_EQ(daemon.json("GET", "/v1/runs/" + id)["budget_fraction"], 0.4);
  send(id, {BudgetEvent{0, 3, Bytes(700), 0.4}, step_event(3, 600)});
  Json run = daemon.json("GET", "/v1/runs/" + id);
  EXPECT_EQ(run["budget_bytes"], 700);
  EXPECT_EQ(run["budget_fraction"], 0.4);
  EXPECT_EQ(run["budget_source"], "run");
  EXPECT_EQ(run["budgets"][1]["fraction"], 0.4);
  daemon.json("PUT", "/v1/runs/train/budget", R"({"budget":"1KiB"})");
  send(id, {BudgetEvent{1, 4, Bytes(1024), std::nullopt}, step_event(4, 1000)});
  run = daemon.json("GET", "/v1/runs/" + id);
  EXPECT_EQ(run["budget_bytes"], 1024);
  EXPECT_TRUE(run["budget_fraction"].is_null());
}

TEST_F(ApiTest, BudgetGoesToTheRunAndComesBack) {
  const std::string id = add(described("train"));
  const Json asked = daemon.json("PUT", "/v1/runs/train/budget", R"({"budget":"1KiB"})");
  EXPECT_EQ(asked,
            Json({{"run", id}, {"budget_bytes", 1024}, {"seq", 1}, {"effective", "next step"}}));
  const Json command = daemon.json("GET", "/v1/runs/" + id + "/commands?after=0")["commands"][0];
  EXPECT_EQ(command["budget_bytes"], 1024);
  EXPECT_EQ(command["source"], "operator");
  send(id, {BudgetEvent{1, 1, Bytes(1024)}, step_event(1, 1000)});
  const Json run = daemon.json("GET", "/v1/runs/" + id);
  EXPECT_EQ(run["budget_bytes"], 1024);
  EXPECT_TRUE(run["budget_pending_bytes"].is_null());
  EXPECT_EQ(run["budgets"][1]["measured_bytes"], 1000);
  EXPECT_EQ(run["budgets"][1]["source"], "operator");
}

TEST_F(ApiTest, BudgetsThatCannotBeAreRefused) {
  add(described("train"));
  for (const char* body :
       {"", "{}", "[]", "7", "{\"budget\":\"much\"}", "{\"budget\":-1}", "{\"budget\":0}",
        "{\"budget\":1.5}", "{\"budget\":null}", "{\"budget\":\"0\"}", "{\"budget\":[1]}"}) {
    const ApiReply reply = daemon.ask("PUT", "/v1/runs/train/budget", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_THAT(reply.body, HasSubstr("expected")) << body;
  }
}

TEST_F(ApiTest, EndedRunTakesNoBudgetAndIsListedWithAll) {
  const std::string id = add(described("train"));
  send(id, {step_event(1, 5), EndEvent{"ok"}});
  EXPECT_EQ(daemon.ask("PUT", "/v1/runs/" + id + "/budget", R"({"budget":5})").status, 409);
  EXPECT_EQ(daemon.json("GET", "/v1/runs")["runs"].size(), 0U);
  EXPECT_EQ(daemon.json("GET", "/v1/runs?all=true")["runs"].size(), 1U);
  EXPECT_EQ(daemon.ask("GET", "/v1/runs?all=maybe").status, 400);
}

TEST_F(ApiTest, RunsOfADaemonBeforeAreKept) {
  const std::string id = add(described("train"));
  send(id, {step_event(1, 5), EndEvent{"oom"}});
  const std::string cut = add(described("cut"));
  daemon.archive->stop();
  auto archive = Archive::open({.path = daemon.folder.file("test.db")}).value();
  const auto run = archive->run(id);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->at("status"), "oom");
  EXPECT_EQ(run->at("steps").size(), 1U);
  EXPECT_EQ(archive->run("cut")->at("state"), "lost");
  EXPECT_EQ(archive->runs(10).size(), 2U);
}

TEST_F(ApiTest, WhatAnEndedRunLearnedIsKeptWithItsPlans) {
  const std::string id = add(described("train"));
  const std::string events = "/v1/runs/" + id + "/events";
  const std::string snapshot = R"({"state":"planning","state_reason":"fit","budget_bytes":600,
    "margin_bytes":1,"base_bytes":1,"cache":{"hits":0,"misses":0,"plans":1},"counters":{},
    "learned":[{"segment":"forward/0/keep","quantity":"seconds"}],"plans":[{"key":"batch=1"}]})";
  const std::string body = R"({"dropped":0,"events":[{"type":"snapshot","snapshot":)" + snapshot +
                           R"(},{"type":"end","status":"ok"}]})";
  ASSERT_EQ(daemon.ask("POST", events, body).status, 200);
  daemon.archive->stop();
  auto archive = Archive::open({.path = daemon.folder.file("test.db")}).value();
  EXPECT_EQ(archive->run(id)->at("learned").at(0).at("quantity"), "seconds");
  EXPECT_EQ(archive->runs(10).at(0).count("learned"), 0U);
  EXPECT_EQ(archive->plans(id)->at("plans").size(), 1U);
  EXPECT_EQ(archive->plans(id)->count("learned"), 0U);
}

TEST_F(ApiTest, MembersOfAGroupHaveNames) {
  EXPECT_EQ(daemon.ask("PUT", "/v1/groups/gpu0", R"({"total":1000})").status, 200);
  RunDescription run = described("train");
  run.group = "gpu0";
  const std::string id = add(run);
  const Json member = daemon.json("GET", "/v1/runs")["groups"][0]["runs"][0];
  EXPECT_EQ(member["id"], id);
  EXPECT_EQ(member["name"], "train");
  const Json set = daemon.json("PUT", "/v1/groups/gpu0", R"({"total":2000})");
  EXPECT_EQ(set["runs"][0]["name"], "train");
}

TEST_F(ApiTest, NothingLearnedSaysSo) {
  const std::string id = add(described("train"));
  EXPECT_EQ(daemon.json("GET", "/v1/runs/" + id)["has_model"], false);
  const ApiReply reply = daemon.ask("GET", "/v1/runs/" + id + "/explain?shape=12x384");
  EXPECT_EQ(reply.status, 503);
  EXPECT_THAT(reply.body, HasSubstr("nothing is learned"));
  EXPECT_EQ(daemon.ask("GET", "/v1/runs/" + id + "/estimate").status, 400);
  EXPECT_EQ(daemon.ask("GET", "/v1/models/none").status, 404);
}

TEST_F(ApiTest, DeepNestingIsRefusedBeforeItIsRead) {
  const std::string id = add(described("train"));
  const std::string deep(100000, '[');
  EXPECT_EQ(daemon.ask("PUT", "/v1/runs/train/budget", deep).status, 400);
  EXPECT_EQ(daemon.ask("POST", "/v1/runs", deep).status, 400);
  const ApiReply reply =
      daemon.ask("POST", "/v1/runs/" + id + "/events", R"({"events":[{"type":"x","y":)" + deep);
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("nested"));
}

TEST_F(ApiTest, GroupDividesItsTotalFromRegistrationOn) {
  EXPECT_EQ(daemon.ask("PUT", "/v1/groups/gpu0", R"({"total":1000})").status, 200);
  RunDescription first = described("a", 1);
  first.group = "gpu0";
  RunDescription second = described("b", 2);
  second.group = "gpu0";
  const Json one = daemon.json("POST", "/v1/runs", pudica::to_json(first));
  EXPECT_EQ(one["budget_bytes"], 600);
  const Json two = daemon.json("POST", "/v1/runs", pudica::to_json(second));
  EXPECT_EQ(two["budget_bytes"], 400);
  const std::string id = one["id"];
  const Json command = daemon.json("GET", "/v1/runs/" + id + "/commands?after=0")["commands"][0];
  EXPECT_EQ(command["budget_bytes"], 500);
  EXPECT_EQ(command["source"], "group");
  send(id, {BudgetEvent{command["seq"], 2, Bytes(500)}});
  const std::string other = two["id"];
  const Json raised = daemon.json("GET", "/v1/runs/" + other + "/commands?after=0")["commands"][0];
  EXPECT_EQ(raised["budget_bytes"], 500);
  const Json group = daemon.json("GET", "/v1/runs")["groups"][0];
  EXPECT_EQ(group["assigned_bytes"], 1000);
  EXPECT_EQ(daemon.ask("PUT", "/v1/runs/a/budget", R"({"budget":900})").status, 409);
  send(other, {EndEvent{"ok"}});
  EXPECT_EQ(daemon.json("GET", "/v1/runs")["groups"][0]["runs"].size(), 1U);
}

}  // namespace
}  // namespace pudica::daemon
