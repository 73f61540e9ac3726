#include "train/options.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pudica::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TrainOptions parse_ok(const std::vector<std::string>& arguments) {
  const auto line = parse_command_line(arguments);
  EXPECT_TRUE(line.has_value()) << line.error().message;
  return line ? line->options : TrainOptions{};
}

std::string parse_error(const std::vector<std::string>& arguments) {
  const auto line = parse_command_line(arguments);
  EXPECT_FALSE(line.has_value());
  if (line) return {};
  EXPECT_EQ(line.error().code, ErrorCode::kInvalidArgument);
  return line.error().message;
}

// The environment's variables would change the defaults.
class TrainOptionsTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("PUDICA_BUDGET");
    unsetenv("PUDICA_CONFIG");
  }
  void TearDown() override { SetUp(); }
};

TEST_F(TrainOptionsTest, HasTheDocumentedDefaults) {
  const auto options = parse_ok({});
  EXPECT_EQ(options.data.kind, DataKind::kText);
  EXPECT_THAT(options.data.path, HasSubstr("pride_and_prejudice.txt"));
  EXPECT_EQ(options.max_length, 1024);
  EXPECT_EQ(options.model.layers, 8);
  EXPECT_EQ(options.model.hidden, 128);
  EXPECT_EQ(options.model.heads, 4);
  EXPECT_EQ(options.model.vocab, 256);
  EXPECT_EQ(options.model.attention, Attention::kFlash);
  EXPECT_EQ(options.model.dtype, Dtype::kFloat32);
  EXPECT_EQ(options.batch, 4);
  EXPECT_EQ(options.steps, 40);
  EXPECT_EQ(options.seed, 1U);
  EXPECT_GE(options.threads, 1);
  EXPECT_EQ(options.device, "cpu");
  EXPECT_THAT(options.policies,
              ElementsAre("none", "full", "static", "mimose", "reactive", "pudica", "oracle"));
  EXPECT_EQ(options.budget.fraction, 0.4);
  EXPECT_FALSE(options.budget_given);
  EXPECT_FALSE(options.daemon);
  EXPECT_FALSE(options.counts_operators);
}

TEST_F(TrainOptionsTest, TestsMayTakeSecondsFromTheOperators) {
  EXPECT_TRUE(parse_ok({"--clock", "operators"}).counts_operators);
  EXPECT_FALSE(parse_ok({"--clock", "device"}).counts_operators);
}

TEST_F(TrainOptionsTest, LengthsAreUncutWithAVocabularyOfTheirOwn) {
  const auto options = parse_ok({"--data", "lengths:a.csv"});
  EXPECT_EQ(options.max_length, 0);
  EXPECT_EQ(options.model.vocab, 4000);
}

TEST_F(TrainOptionsTest, TheLaterOfARepeatedOptionWins) {
  const auto options =
      parse_ok({"--steps", "5", "--budget=0.1", "--model", "base", "--steps=7", "--model", "mini",
                "--budget", "600MiB", "--daemon", "--daemon", "--name", "mine"});
  EXPECT_EQ(options.steps, 7);
  EXPECT_EQ(options.model.preset, "mini");
  EXPECT_EQ(options.model.hidden, 64);
  EXPECT_EQ(options.budget.bytes, Bytes(600LL << 20));
  EXPECT_FALSE(options.budget.fraction.has_value());
  EXPECT_TRUE(options.daemon);
  EXPECT_EQ(options.name, "mine");
}

TEST_F(TrainOptionsTest, ArgumentsWinOverTheEnvironment) {
  setenv("PUDICA_BUDGET", "1GB", 1);
  setenv("PUDICA_CONFIG", "from_environment.json", 1);
  const auto inherited = parse_ok({});
  EXPECT_EQ(inherited.budget.bytes, Bytes(1'000'000'000));
  EXPECT_TRUE(inherited.budget_given);
  EXPECT_EQ(inherited.config, "from_environment.json");
  const auto given = parse_ok({"--budget", "0.5", "--config", "given.json"});
  EXPECT_EQ(given.budget.fraction, 0.5);
  EXPECT_EQ(given.config, "given.json");
}

TEST_F(TrainOptionsTest, EveryWrongValueNamesOptionSeenAndExpected) {
  struct Case {
    std::string option, value;
  };
  const std::vector<Case> cases = {{"--data", "nonsense"},
                                   {"--data", "text:"},
                                   {"--data", "lengths:a.csv:a,b,c"},
                                   {"--data", "lengths:a.csv:a,"},
                                   {"--max-length", "0"},
                                   {"--max-length", "12x"},
                                   {"--model", "huge"},
                                   {"--model", "small,layer=3"},
                                   {"--model", "small,layers=0"},
                                   {"--model", "small,heads=3"},
                                   {"--model", "small,dtype=fp16"},
                                   {"--model", "small,attention=fast"},
                                   {"--model", "small,dropout=1"},
                                   {"--model", "small,layers"},
                                   {"--model", "small,vocab=100"},
                                   {"--batch", "0"},
                                   {"--batch", "1.5"},
                                   {"--steps", "many"},
                                   {"--steps", "99999999999999999999"},
                                   {"--seed", "-1"},
                                   {"--threads", "0"},
                                   {"--device", "tpu"},
                                   {"--policy", "none,,full"},
                                   {"--policy", "none,none"},
                                   {"--budget", "1.5"},
                                   {"--budget", "-1"},
                                   {"--budget", "0"},
                                   {"--budget", "lots"},
                                   {"--budget", "1.2.3"},
                                   {"--budget", "."},
                                   {"--warmup-mode", "quick"},
                                   {"--clock", "sundial"},
                                   {"--out", ""}};
  for (const auto& wrong : cases) {
    const auto message = parse_error({wrong.option + "=" + wrong.value});
    EXPECT_THAT(message, HasSubstr(wrong.option)) << wrong.value;
    EXPECT_THAT(message, HasSubstr("expected")) << wrong.option << "=" << wrong.value;
  }
}

TEST_F(TrainOptionsTest, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(parse_error({"--polcy", "none"}), HasSubstr("--polcy"));
  EXPECT_THAT(parse_error({"extra"}), HasSubstr("extra"));
  EXPECT_THAT(parse_error({"--steps"}), HasSubstr("--steps"));
}

TEST_F(TrainOptionsTest, HelpListsEveryOption) {
  const auto line = parse_command_line(std::vector<std::string>{"--help"});
  ASSERT_TRUE(line.has_value());
  for (const auto* option : {"--data", "--max-length", "--model", "--batch", "--steps", "--seed",
                             "--threads", "--device", "--policy", "--budget", "--config", "--state",
                             "--out", "--daemon", "--name", "--warmup-mode", "--record"}) {
    EXPECT_THAT(line->print, HasSubstr(option));
  }
}

TEST(ParseData, SeparatesColumnsFromPaths) {
  const auto one = parse_data("lengths:dir:x/a.csv:len");
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->path, "dir:x/a.csv");
  EXPECT_THAT(one->columns, ElementsAre("len"));
  const auto two = parse_data("lengths:a.csv:src_len,tgt_len");
  ASSERT_TRUE(two.has_value());
  EXPECT_THAT(two->columns, ElementsAre("src_len", "tgt_len"));
  const auto none = parse_data("lengths:b:a.csv");
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(none->path, "b:a.csv");
  EXPECT_TRUE(none->columns.empty());
  const auto text = parse_data("text:a:b.txt");
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(text->path, "a:b.txt");
}

TEST(ParseModel, TakesKeysOverThePreset) {
  const auto model = parse_model(
      "base,layers=3,hidden=96,heads=6,vocab=512,attention=math,dtype=bf16,dropout=0.25");
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(model->preset, "base");
  EXPECT_EQ(model->layers, 3);
  EXPECT_EQ(model->hidden, 96);
  EXPECT_EQ(model->heads, 6);
  EXPECT_EQ(model->vocab, 512);
  EXPECT_EQ(model->attention, Attention::kMath);
  EXPECT_EQ(model->dtype, Dtype::kBfloat16);
  EXPECT_EQ(model->dropout, 0.25);
}

TEST(ParseBudget, APointWithoutAUnitMakesAFraction) {
  for (const auto& [text, fraction] : std::vector<std::pair<std::string, double>>{
           {"0.0", 0.0}, {"0.4", 0.4}, {"1.0", 1.0}, {"1.", 1.0}, {".25", 0.25}}) {
    const auto budget = parse_budget(text);
    ASSERT_TRUE(budget.has_value()) << text;
    EXPECT_EQ(budget->fraction, fraction) << text;
  }
  for (const auto& [text, bytes] : std::vector<std::pair<std::string, std::int64_t>>{
           {"1", 1}, {"629145600", 629145600}, {"600MiB", 629145600}, {"1.5GB", 1500000000}}) {
    const auto budget = parse_budget(text);
    ASSERT_TRUE(budget.has_value()) << text;
    EXPECT_FALSE(budget->fraction.has_value()) << text;
    EXPECT_EQ(budget->bytes.count(), bytes) << text;
  }
}

TEST(ParseBudget, TakesWhatRunSets) {
  EXPECT_EQ(parse_budget("between(0.4)")->fraction, 0.4);
  EXPECT_FALSE(parse_budget("between(1.4)").has_value());
}

TEST(ParseBudget, AFractionLiesBetweenFloorAndKeepAll) {
  BudgetOption half;
  half.fraction = 0.5;
  EXPECT_EQ(half.resolve(Bytes(100), Bytes(300)), Bytes(200));
  half.fraction = 0.0;
  EXPECT_EQ(half.resolve(Bytes(100), Bytes(300)), Bytes(100));
  half.fraction = 1.0;
  EXPECT_EQ(half.resolve(Bytes(100), Bytes(300)), Bytes(300));
  BudgetOption bytes;
  bytes.bytes = Bytes(7);
  EXPECT_EQ(bytes.resolve(Bytes(100), Bytes(300)), Bytes(7));
}

}  // namespace
}  // namespace pudica::train
