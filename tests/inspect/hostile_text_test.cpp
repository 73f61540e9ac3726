// Texts that no program of ours writes: each was found by fuzzing or by reading for it.
#include <string>

#include <gmock/gmock.h>

#include "inspect/run_protocol.h"
#include "pudica/shape_key.h"

namespace pudica {
namespace {

using testing::HasSubstr;

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(HostileText, OptionalFieldAfterAnErrorIsNotLookedAt) {
  EXPECT_THAT(parse_run_description(R"({"versions":{}})").error().message, HasSubstr("protocol"));
  EXPECT_THAT(parse_registration(R"({"id":"k","state":null})").error().message,
              HasSubstr("protocol"));
}

TEST(HostileText, DeepNestingIsRefusedByName) {
  for (const std::size_t depth : {std::size_t{1000}, std::size_t{1000000}}) {
    const std::string deep = nested(depth);
    const std::string open(depth, '[');
    EXPECT_THAT(parse_run_description(R"({"protocol":)" + deep + "}").error().message,
                HasSubstr("nested"));
    EXPECT_THAT(parse_registration(open).error().message, HasSubstr("nested"));
    EXPECT_THAT(
        parse_event_batch(R"({"events":[{"type":"snapshot","snapshot":{"a":)" + deep + "}}]}")
            .error()
            .message,
        HasSubstr("nested"));
    EXPECT_THAT(parse_commands(R"({"commands":[)" + deep + "]}").error().message,
                HasSubstr("nested"));
    EXPECT_THAT(parse_step_record(R"({"modes":)" + deep + "}").error().message,
                HasSubstr("nested"));
  }
}

// An object of many fields took time by the square of their number.
TEST(HostileText, ObjectsWithVeryManyFieldsAreRefusedByName) {
  std::string many = R"({"protocol":1)";
  for (int i = 0; i < 300000; ++i) many += ",\"" + std::to_string(i) + "\":1";
  EXPECT_THAT(parse_run_description(many + "}").error().message, HasSubstr("1024 fields"));
}

TEST(HostileText, BracketsInsideTextsAreNotNesting) {
  const std::string brackets(1000, '[');
  const auto run =
      parse_run_description(R"({"protocol":1,"budget_bytes":0,"name":"\")" + brackets + R"(\\"})");
  ASSERT_TRUE(run.has_value()) << run.error().message;
  EXPECT_EQ(run->name, "\"" + brackets + "\\");
}

TEST(HostileText, NumbersThatDoNotFitAreRefusedNotWrapped) {
  const auto record = parse_step_record(
      R"({"schema":"pudica.step/1","run":"r","step":1,"key":"1x2","plan_id":null,"modes":[],)"
      R"("predicted_bytes":null,"measured_bytes":1,"budget_bytes":0,"seconds":0,"revocations":0,)"
      R"("overrun":false,"profiles":{"base_bytes":0,"gradients_present":false,)"
      R"("structure":{"classes":[],"layers":[]},"segments":[{"kind":"head","class":0,)"
      R"("mode":"keep","variant":0,"layer":-1,"net_bytes":0,"peak_bytes":0,"seconds":0,)"
      R"("deltas":[9223372036854775808]}]}})");
  ASSERT_FALSE(record.has_value());
  EXPECT_THAT(record.error().message, HasSubstr("deltas[0]"));
}

TEST(HostileText, MessagesQuoteOnlyTheBeginningOfALongText) {
  const std::string text(100000, 'k');
  EXPECT_LT(parse_event_batch(R"({"events":[{"type":"end","status":")" + text + R"("}]})")
                .error()
                .message.size(),
            1000U);
  EXPECT_LT(ShapeKey::parse(text).error().message.size(), 300U);
  EXPECT_LT(ShapeKey::parse(text + "=1").error().message.size(), 300U);
  EXPECT_LT(parse_bytes(text).error().message.size(), 300U);
  EXPECT_LT(parse_mode(text).error().message.size(), 300U);
}

TEST(HostileText, WhatIsNoJsonIsCalledSo) {
  for (const std::string& message : {parse_step_record("root:x:0:0").error().message,
                                     parse_run_description("{\"protocol\":1,").error().message,
                                     parse_event_batch("").error().message}) {
    EXPECT_THAT(message, HasSubstr("not JSON that can be read: parse error at line 1"));
    EXPECT_THAT(message, testing::Not(HasSubstr("exception")));
  }
}

// Names of dimensions are kept for the life of the process.
TEST(HostileText, NamesOfDimensionsAreBounded) {
  std::size_t accepted = 0;
  for (int i = 0; i < 5000; ++i) {
    accepted += ShapeKey::parse("name" + std::to_string(i) + "=1").has_value() ? 1U : 0U;
  }
  EXPECT_LT(accepted, 2000U);
  EXPECT_THAT(ShapeKey::parse("one_more=1").error().message, HasSubstr("names"));
  EXPECT_TRUE(ShapeKey::parse("12x384").has_value());
  EXPECT_TRUE(ShapeKey::parse("name1=5").has_value()) << "known already";
}

}  // namespace
}  // namespace pudica
