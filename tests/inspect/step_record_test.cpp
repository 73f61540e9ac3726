#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "inspect/json.h"

namespace pudica {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

StepOutcome outcome_with_plan() {
  auto plan = std::make_shared<Plan>();
  plan->id = 7;
  plan->modes = {Mode::keep(), Mode::selective(2), Mode::full()};
  plan->predicted_peak_bytes = Bytes(612'000);
  StepOutcome outcome;
  outcome.context.shape = ShapeKey{12, 384};
  outcome.context.base_bytes = Bytes(100'000);
  outcome.context.budget_bytes = Bytes(700'000);
  outcome.plan = plan;
  outcome.peak_bytes = Bytes(611'000);
  outcome.seconds = 0.25;
  outcome.revocations = 1;
  return outcome;
}

StepStructure two_layers() {
  StepStructure out{{{0, 0}, {0, SegmentKey::kLastOfClass}}, {"encoder"}};
  StepStructure::Menu& menu = out.menus.emplace_back();
  menu.id = 77;
  menu.steps = {"drops some", "drops more"};
  menu.promises = {{4096, 0.25}, {8192, 1}};
  menu.shape = ShapeKey{12, 256};
  return out;
}

StepRecord recorded() {
  StepOutcome outcome = outcome_with_plan();
  outcome.context.gradients_present = true;
  outcome.context.casts_present = true;
  outcome.ran_free = true;
  outcome.host_peak_bytes = Bytes(8192);
  outcome.allocator = AllocatorPeaks{Bytes(612'000), Bytes(640'000), Bytes(9'000)};
  SegmentObservation segment;
  segment.key = {SegmentKind::kBackward, 0, Mode::selective(2), SegmentKey::kLastOfClass};
  segment.layer = 1;
  segment.sample = {{4096, -2048, 512}, -1536, 4096, 0.001};
  outcome.segments = {segment, {{SegmentKind::kHead, 0, Mode::keep(), 0}, -1, {{}, 0, 64, 0}}};
  return make_step_record("run-1", 3, outcome, two_layers());
}

TEST(StepRecord, HasTheFieldsOfTheSchemaInOrder) {
  const StepRecord record = make_step_record("run-1", 3, outcome_with_plan(), two_layers());
  EXPECT_EQ(step_record_to_json(record),
            R"({"schema":"pudica.step/1","run":"run-1","step":3,"key":"batch=12,source=384",)"
            R"("plan_id":7,"modes":["keep","selective:2","full"],"predicted_bytes":612000,)"
            R"("measured_bytes":611000,"budget_bytes":700000,"seconds":0.25,"revocations":1,)"
            R"("overrun":false,"base_bytes":100000,"gradients_present":false})");
}

TEST(StepRecord, APredictionIsToldOnlyOfWhatTheStepDid) {
  StepOutcome outcome = outcome_with_plan();
  EXPECT_TRUE(make_step_record("r", 3, outcome, two_layers()).predicted_bytes);
  outcome.repeated_backward = true;
  EXPECT_FALSE(make_step_record("r", 3, outcome, two_layers()).predicted_bytes);
  outcome.repeated_backward = false;
  outcome.other_layers = true;
  EXPECT_FALSE(make_step_record("r", 3, outcome, two_layers()).predicted_bytes);
}

TEST(StepRecord, TellsWhatRunningLayersAgainTook) {
  StepOutcome outcome = outcome_with_plan();
  EXPECT_EQ(make_step_record("r", 3, outcome, two_layers()).recompute_seconds, std::nullopt)
      << "nothing of it was measured";
  outcome.revocations = 0;
  auto plan = std::make_shared<Plan>(*outcome.plan);
  plan->modes = {Mode::full(), Mode::keep()};
  outcome.plan = plan;
  outcome.recomputes = {{0, Mode::full(), 0.03, 0.02}};
  const StepRecord record = make_step_record("r", 3, outcome, two_layers());
  EXPECT_EQ(record.recompute_seconds, 0.03);
  EXPECT_EQ(parse_step_record(step_record_to_json(record))->recompute_seconds, 0.03);
}

TEST(StepRecord, TheBudgetIsTheUsersWithWhatTheAllocatorTakes) {
  StepOutcome outcome = outcome_with_plan();
  outcome.context.allocator_bytes = Bytes(5000);
  EXPECT_EQ(make_step_record("r", 0, outcome, {}).budget_bytes, Bytes(705000));
}

TEST(StepRecord, StepWithoutPlanHasNulls) {
  StepOutcome outcome = outcome_with_plan();
  outcome.plan = nullptr;
  const json line = json::parse(step_record_to_json(make_step_record("r", 0, outcome, {})));
  EXPECT_TRUE(line.at("plan_id").is_null());
  EXPECT_TRUE(line.at("predicted_bytes").is_null());
  EXPECT_EQ(line.at("modes"), json::array());
  EXPECT_FALSE(line.contains("profiles"));
  const auto again = parse_step_record(line.dump());
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_FALSE(again->plan_id.has_value());
  EXPECT_FALSE(again->predicted_bytes.has_value());
}

TEST(StepRecord, RoundTripsEveryField) {
  StepRecord record = recorded();
  record.profiles->segments[0].released_bytes = 77;
  const std::string line = step_record_to_json(record);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto again = parse_step_record(line);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(again->run, "run-1");
  EXPECT_EQ(again->step, 3U);
  EXPECT_EQ(again->key, (ShapeKey{12, 384}));
  EXPECT_EQ(again->key.names(), record.key.names());
  EXPECT_EQ(again->plan_id, 7U);
  EXPECT_EQ(again->modes, record.modes);
  EXPECT_EQ(again->predicted_bytes, Bytes(612'000));
  EXPECT_EQ(again->measured_bytes, Bytes(611'000));
  EXPECT_EQ(again->budget_bytes, Bytes(700'000));
  EXPECT_EQ(again->seconds, 0.25);
  EXPECT_EQ(again->revocations, 1);
  EXPECT_FALSE(again->overrun);
  EXPECT_EQ(again->host_peak_bytes, Bytes(8192));
  EXPECT_EQ(again->allocator, record.allocator);
  ASSERT_TRUE(again->profiles.has_value());
  EXPECT_EQ(again->profiles->base_bytes, Bytes(100'000));
  EXPECT_TRUE(again->profiles->gradients_present);
  EXPECT_TRUE(again->casts_present);
  EXPECT_TRUE(again->ran_free);
  EXPECT_TRUE(again->profiles->casts_present);
  EXPECT_EQ(again->profiles->structure, two_layers());
  ASSERT_EQ(again->profiles->segments.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const SegmentObservation& before = record.profiles->segments[i];
    const SegmentObservation& after = again->profiles->segments[i];
    EXPECT_EQ(after.key, before.key);
    EXPECT_EQ(after.layer, before.layer);
    EXPECT_EQ(after.sample.deltas, before.sample.deltas);
    EXPECT_EQ(after.sample.net_bytes, before.sample.net_bytes);
    EXPECT_EQ(after.sample.peak_bytes, before.sample.peak_bytes);
    EXPECT_EQ(after.sample.seconds, before.sample.seconds);
    EXPECT_EQ(after.released_bytes, before.released_bytes);
  }
  EXPECT_EQ(step_record_to_json(*again), line);
}

TEST(StepRecord, ExtremeValuesRoundTrip) {
  StepRecord record = recorded();
  record.step = std::numeric_limits<std::uint64_t>::max();
  record.measured_bytes = Bytes(std::numeric_limits<std::int64_t>::max());
  record.profiles->segments[0].sample.net_bytes = std::numeric_limits<std::int64_t>::min();
  const auto again = parse_step_record(step_record_to_json(record));
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(step_record_to_json(*again), step_record_to_json(record));
}

TEST(StepRecord, OddNumbersAndTextAreWrittenAsValidJson) {
  StepRecord record = recorded();
  record.seconds = std::numeric_limits<double>::quiet_NaN();
  record.run = "bad \xff name\n";
  const std::string line = step_record_to_json(record);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto again = parse_step_record(line);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(again->seconds, 0.0);
}

TEST(StepRecord, ExampleInTheDocumentationIsReadAndWrittenBack) {
  std::ifstream file(std::string(std::getenv("PUDICA_SOURCE_DIR")) + "/docs/step_record.md");
  std::string line;
  while (std::getline(file, line) && line != "```json") {
  }
  ASSERT_TRUE(std::getline(file, line)) << "no example found";
  const auto record = parse_step_record(line);
  ASSERT_TRUE(record.has_value()) << record.error().message;
  EXPECT_EQ(step_record_to_json(*record), line);
}

TEST(StepRecord, PassesOverUnknownFields) {
  json line = json::parse(step_record_to_json(recorded()));
  line["later"] = 1;
  EXPECT_TRUE(parse_step_record(line.dump()).has_value());
}

TEST(StepRecord, RefusesAnotherVersionWithBothNames) {
  json line = json::parse(step_record_to_json(recorded()));
  line["schema"] = "pudica.step/2";
  const auto result = parse_step_record(line.dump());
  ASSERT_FALSE(result.has_value());
  EXPECT_THAT(result.error().message, HasSubstr("'pudica.step/2', expected 'pudica.step/1'"));
}

TEST(StepRecord, EveryMissingFieldIsNamed) {
  const json whole = json::parse(step_record_to_json(recorded()));
  for (const auto& [name, value] : whole.items()) {
    // Only of recorded steps, of steps with layers of mode `offload`, of CUDA devices, and what
    // older records lack.
    if (name == "profiles" || name == "host_peak_bytes" || name == "allocator") continue;
    if (name == "recompute_seconds" || name == "base_bytes" || name == "gradients_present" ||
        name == "casts_present" || name == "ran_free")
      continue;
    json line = whole;
    line.erase(name);
    const auto result = parse_step_record(line.dump());
    ASSERT_FALSE(result.has_value()) << name;
    EXPECT_THAT(result.error().message, HasSubstr(name + ": missing"));
  }
}

TEST(StepRecord, WrongValuesAreNamedWithWhatWasExpected) {
  struct Case {
    const char* pointer;
    json value;
    const char* message;
  };
  const json whole = json::parse(step_record_to_json(recorded()));
  for (const Case& wrong : {
           Case{"/step", -1, "step: -1, expected an integer, at least 0"},
           Case{"/run", 5, "run: 5, expected a string"},
           Case{"/key", "12y384", "key: not a shape"},
           Case{"/plan_id", "x", "plan_id: \"x\", expected an integer"},
           Case{"/modes", "keep", "modes: \"keep\", expected a list"},
           Case{"/modes/1", "half", "modes[1]: unknown mode 'half'"},
           Case{"/modes/0", 3, "modes[0]: unknown mode '3'"},
           Case{"/measured_bytes", -5, "measured_bytes: -5, expected an integer from 0"},
           Case{"/measured_bytes", 1.5, "measured_bytes: 1.5, expected an integer"},
           Case{"/predicted_bytes", "1", "predicted_bytes: \"1\", expected an integer"},
           Case{"/seconds", nullptr, "seconds: null, expected a number"},
           Case{"/overrun", 0, "overrun: 0, expected true or false"},
           Case{"/host_peak_bytes", -1, "host_peak_bytes: -1, expected an integer from 0"},
           Case{"/allocator/gap_bytes", -1, "allocator.gap_bytes: -1, expected an integer from 0"},
           Case{"/allocator", 1, "allocator.: expected an object"},
           Case{"/profiles", 1, "profiles.: expected an object"},
           Case{"/profiles/structure/layers/1/class", 70000, "profiles.structure.layers[1].class"},
           Case{"/profiles/structure/menus/0/promises/1/freed_bytes", -1,
                "profiles.structure.menus[0].promises[1].freed_bytes: -1, expected an integer"},
           Case{"/profiles/structure/menus/0/key", "x", "profiles.structure.menus[0].key: not"},
           Case{"/profiles/segments/0/kind", "side", "profiles.segments[0].kind: 'side', expected"},
           Case{"/profiles/segments/0/deltas/2", "a", "profiles.segments[0].deltas[2]: expected"},
           Case{"/profiles/segments/1/peak_bytes", -1, "profiles.segments[1].peak_bytes: -1"},
           Case{"/profiles/segments/1/net_bytes", 65, "peak_bytes: below net_bytes"},
       }) {
    json line = whole;
    line[json::json_pointer(wrong.pointer)] = wrong.value;
    const auto result = parse_step_record(line.dump());
    ASSERT_FALSE(result.has_value()) << wrong.pointer;
    EXPECT_THAT(result.error().message, HasSubstr(wrong.message));
  }
}

TEST(StepRecord, EveryTruncationIsAnErrorAndNeverThrows) {
  const std::string line = step_record_to_json(recorded());
  for (std::size_t length = 0; length < line.size(); ++length) {
    EXPECT_FALSE(parse_step_record(std::string_view(line).substr(0, length)).has_value()) << length;
  }
}

}  // namespace
}  // namespace pudica
