// What runs and the daemon tell each other survives the way there and back; rubbish is named.
#include "inspect/run_protocol.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inspect/socket_path.h"

namespace pudica {
namespace {

using ::testing::HasSubstr;

RunDescription description() {
  RunDescription run;
  run.name = "train";
  run.pid = 4711;
  run.user = "ada";
  run.command = "pudica-train --daemon";
  run.device = "cpu";
  run.fingerprint = "f";
  run.versions = {{"pudica", "0.1.0"}, {"torch", "2.11.0"}};
  run.budget_bytes = Bytes(600 << 20);
  run.floor_bytes = Bytes(5);
  run.steps_total = 100;
  return run;
}

StepRecord record() {
  StepRecord out;
  out.run = "train";
  out.step = 3;
  out.key = ShapeKey{12, 384};
  out.plan_id = 7;
  out.modes = {Mode::keep(), Mode::full()};
  out.predicted_bytes = Bytes(612);
  out.measured_bytes = Bytes(611);
  out.seconds = 0.25;
  return out;
}

TEST(RunProtocol, RegistrationSurvivesTheWayThereAndBack) {
  const auto back = parse_run_description(to_json(description()));
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(to_json(*back), to_json(description()));
  EXPECT_EQ(back->versions.at("torch"), "2.11.0");
  EXPECT_EQ(back->floor_bytes, Bytes(5));
  EXPECT_FALSE(back->keep_all_bytes.has_value());

  Registration answer;
  answer.id = "k3v9q2";
  answer.budget_bytes = Bytes(7);
  answer.state = "pudica-state 1\n";
  const auto read = parse_registration(to_json(answer));
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(read->id, "k3v9q2");
  EXPECT_EQ(read->budget_bytes, Bytes(7));
  EXPECT_EQ(read->state, "pudica-state 1\n");
}

TEST(RunProtocol, EveryEventSurvivesTheWayThereAndBack) {
  EventBatch batch;
  batch.dropped = 2;
  batch.events = {StepEvent{record(), true, 5},
                  SnapshotEvent{R"({"state":"planning"})"},
                  ModelEvent{"text\nof two lines"},
                  BudgetEvent{4, 9, Bytes(8), std::nullopt},
                  BudgetEvent{0, 10, Bytes(9), 0.4},
                  NeedEvent{Bytes(77)},
                  EndEvent{"ok"}};
  const auto back = parse_event_batch(to_json(batch));
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(back->events.size(), 7U);
  EXPECT_EQ(to_json(*back), to_json(batch));
  EXPECT_EQ(std::get<StepEvent>(back->events[0]).recomputed, 5);
  EXPECT_EQ(std::get<BudgetEvent>(back->events[3]).budget_bytes, Bytes(8));
  EXPECT_EQ(std::get<BudgetEvent>(back->events[3]).fraction, std::nullopt);
  EXPECT_EQ(std::get<BudgetEvent>(back->events[4]).fraction, 0.4);
}

TEST(RunProtocol, AFractionOfABudgetIsOneOrNotTold) {
  RunDescription run;
  EXPECT_EQ(parse_run_description(to_json(run))->budget_fraction, std::nullopt);
  run.budget_fraction = 0.25;
  EXPECT_EQ(parse_run_description(to_json(run))->budget_fraction, 0.25);
  for (const char* wrong : {"1.5", "-0.1", "\"0.4\"", "[]"}) {
    const std::string text =
        std::string(R"({"protocol":1,"budget_bytes":1,"budget_fraction":)") + wrong + "}";
    EXPECT_THAT(parse_run_description(text).error().message, HasSubstr("budget_fraction")) << wrong;
  }
}

TEST(RunProtocol, CommandsSurviveTheWayThereAndBack) {
  const std::vector<Command> commands{{3, SetBudgetCommand{Bytes(9), "operator"}},
                                      {4, ModelCommand{}}};
  const auto back = parse_commands(to_json(commands));
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(to_json(*back), to_json(commands));
}

TEST(RunProtocol, PassesOverWhatItDoesNotKnow) {
  const auto batch = parse_event_batch(
      R"({"dropped":0,"new":1,"events":[{"type":"weather"},{"type":"need","bytes":1,"x":2}]})");
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->events.size(), 1U);
  const auto commands = parse_commands(R"({"commands":[{"seq":1,"type":"dance"}]})");
  ASSERT_TRUE(commands.has_value());
  EXPECT_TRUE(commands->empty());
}

TEST(RunProtocol, NamesWhatIsWrong) {
  EXPECT_THAT(parse_run_description("[1]").error().message, HasSubstr("JSON object"));
  EXPECT_THAT(parse_run_description(R"({"protocol":1})").error().message,
              HasSubstr("budget_bytes: missing"));
  EXPECT_THAT(parse_run_description(R"({"protocol":1,"budget_bytes":-4})").error().message,
              HasSubstr("budget_bytes: -4"));
  EXPECT_THAT(parse_event_batch(R"({"events":[{"type":"end","status":"fine"}]})").error().message,
              HasSubstr("events[0].status: 'fine', expected ok, oom, failed or interrupted"));
  EXPECT_THAT(parse_event_batch(R"({"events":[3]})").error().message, HasSubstr("events[0]"));
  EXPECT_THAT(parse_event_batch(R"({"events":[{"type":"step","record":[]}]})").error().message,
              HasSubstr("events[0].record"));
  std::string events = "{\"events\":[0";
  for (std::size_t i = 0; i < kMaxEventsPerBatch; ++i) events += ",0";
  EXPECT_THAT(parse_event_batch(events + "]}").error().message, HasSubstr("at most 4096"));
}

TEST(RunProtocol, OnlyTheBatchesOwnListHoldsEvents) {
  // Lists and names within an event, and fields on both sides of the list.
  const auto batch = parse_event_batch(
      R"({"note":{"events":[{"type":"need","bytes":9}]},
          "events":[{"type":"snapshot","snapshot":{"events":[[1,[2]],{"type":"end"}],"x":[]}},
                    {"type":"need","bytes":4,"more":[{"bytes":5}]}],
          "dropped":7})");
  ASSERT_TRUE(batch.has_value()) << batch.error().message;
  EXPECT_EQ(batch->dropped, 7);
  ASSERT_EQ(batch->events.size(), 2U);
  EXPECT_EQ(std::get<SnapshotEvent>(batch->events[0]).snapshot,
            R"({"events":[[1,[2]],{"type":"end"}],"x":[]})");
  EXPECT_EQ(std::get<NeedEvent>(batch->events[1]).bytes, Bytes(4));
  EXPECT_THAT(parse_event_batch(R"({"events":[[{"type":"end"}]]})").error().message,
              HasSubstr("events[0]: expected an object"));
  EXPECT_THAT(parse_event_batch(R"({"events":{"0":1}})").error().message, HasSubstr("events: "));
  EXPECT_THAT(parse_event_batch(R"({"dropped":0})").error().message, HasSubstr("events: missing"));
  EXPECT_FALSE(parse_event_batch(R"([{"events":[{"type":"need","bytes":4}]}])"));
}

TEST(RunProtocol, FieldsAfterAFaultAreNotTouched) {
  EXPECT_FALSE(parse_run_description(R"({"protocol":"x","budget_bytes":1,"versions":{}})"));
  EXPECT_FALSE(parse_run_description(R"({"protocol":1,"budget_bytes":1,"versions":7})"));
  EXPECT_FALSE(parse_registration(R"({"id":7,"state":null})"));
}

TEST(RunProtocol, DeepTextsAreRefusedUnread) {
  const std::string deep(1000000, '[');
  EXPECT_THAT(parse_event_batch(R"({"events":)" + deep).error().message, HasSubstr("nested"));
  EXPECT_THAT(parse_commands(deep).error().message, HasSubstr("nested"));
}

TEST(RunProtocol, SnapshotIsReadForWhatIsWantedAtEveryTurn) {
  const auto batch = parse_event_batch(
      R"({"events":[{"type":"snapshot","snapshot":{"state":"planning","base_bytes":5,
          "counters":{"overruns":2},"cache":{"hits":3},"margin_bytes":"odd"}}]})");
  ASSERT_TRUE(batch.has_value());
  const auto& fields = std::get<SnapshotEvent>(batch->events[0]).fields;
  EXPECT_EQ(fields.state, "planning");
  EXPECT_EQ(fields.base_bytes, Bytes(5));
  EXPECT_EQ(fields.overruns, 2);
  EXPECT_EQ(fields.cache_hits, 3);
  EXPECT_EQ(fields.margin_bytes, Bytes(0));
}

TEST(SocketPath, FirstGivenWins) {
  const auto environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "PUDICA_SOCKET") return "/named";
    return std::nullopt;
  };
  const auto empty = [](const std::string&) -> std::optional<std::string> { return ""; };
  const auto runtime = [](const std::string& name) -> std::optional<std::string> {
    if (name == "XDG_RUNTIME_DIR") return "/run/user/7";
    return std::nullopt;
  };
  EXPECT_EQ(daemon_socket_path("/given", environment, 7), "/given");
  EXPECT_EQ(daemon_socket_path("", environment, 7), "/named");
  EXPECT_EQ(daemon_socket_path("", runtime, 7), "/run/user/7/pudica/pudicad.sock");
  EXPECT_EQ(daemon_socket_path("", empty, 0), "/run/pudica/pudicad.sock");
  EXPECT_EQ(daemon_socket_path("", empty, 7), "/tmp/pudica-7/pudicad.sock");
}

}  // namespace
}  // namespace pudica
