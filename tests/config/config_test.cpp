#include "config/config.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pudica {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

std::filesystem::path source_dir() {
  const char* const root = std::getenv("PUDICA_SOURCE_DIR");
  if (root == nullptr) throw std::runtime_error("PUDICA_SOURCE_DIR is not set");
  return root;
}

ParsedConfig fixture(const std::string& name) {
  return load_config(source_dir() / "tests/fixtures/config" / name);
}

TEST(Config, DefaultFileParsesToTheDefaults) {
  const ParsedConfig parsed = load_config(source_dir() / "configs/default.json");
  EXPECT_THAT(parsed.errors, IsEmpty());
  EXPECT_EQ(parsed.config, Config{});
}

TEST(Config, EmptyObjectParsesToTheDefaults) {
  const ParsedConfig parsed = parse_config("{}", "inline");
  EXPECT_THAT(parsed.errors, IsEmpty());
  EXPECT_EQ(parsed.config, Config{});
}

TEST(Config, ReadsEveryKey) {
  const ParsedConfig parsed = fixture("good/every_key.json");
  ASSERT_THAT(parsed.errors, IsEmpty());
  const Config& config = parsed.config;
  EXPECT_EQ(config.budget.kind, BudgetSetting::Kind::kBytes);
  EXPECT_EQ(config.budget.bytes, Bytes(1'500'000'000));
  EXPECT_EQ(config.warmup.mode, WarmupMode::kSheltered);
  EXPECT_EQ(config.warmup.min_steps, 3);
  EXPECT_EQ(config.warmup.max_steps, 3);
  EXPECT_EQ(config.warmup.fit_error, 1.0);
  EXPECT_EQ(config.predictor.forgetting, 0.95);
  EXPECT_EQ(config.predictor.max_samples_per_segment, 4);
  EXPECT_THAT(config.planner.menu, ElementsAre(Mode::Kind::kFull, Mode::Kind::kKeep));
  EXPECT_EQ(config.planner.frontier_limit, 4096);
  EXPECT_THAT(config.planner.keep_operators, ElementsAre("aten::addmm", "_scaled_*"));
  EXPECT_THAT(config.planner.recompute_operators, ElementsAre("gelu"));
  EXPECT_EQ(config.offload.host_bytes, 1048576);
  EXPECT_EQ(config.margin.revocation_rate, 0.5);
  EXPECT_EQ(config.cache.capacity, 1);
  EXPECT_EQ(config.policy, "mimose:rule=code:buffer=0.1");
  EXPECT_FALSE(config.daemon.enabled);
  EXPECT_EQ(config.daemon.socket, "run/pudicad.sock");
  EXPECT_EQ(config.daemon.group, "a40");
  EXPECT_EQ(config.log.level, "off");
  EXPECT_EQ(config.state_file, "state.pudica");
}

TEST(Config, ReportsEveryErrorAtOnceWithKeyValueAndExpectation) {
  const ParsedConfig parsed = fixture("bad/many_errors.json");
  ASSERT_THAT(parsed.errors, SizeIs(config_keys().size()));
  for (const ConfigKey& key : config_keys()) {
    EXPECT_THAT(parsed.errors,
                Contains(AllOf(HasSubstr(": " + key.path + ": "),
                               HasSubstr("expected " + key.type + ": " + key.range))))
        << key.path;
  }
  EXPECT_THAT(parsed.errors, Contains(HasSubstr("warmup.mode: \"gentle\", expected string: "
                                                "revocable or sheltered")));
  EXPECT_THAT(parsed.errors, Contains(HasSubstr("margin.revocation_rate: \"1%\"")));
  EXPECT_FALSE(parsed.result().has_value());
}

TEST(Config, RefusesUnknownKeysWithTheNearestKnownName) {
  EXPECT_THAT(fixture("bad/unknown_keys.json").errors,
              UnorderedElementsAre(HasSubstr("warmup.min_step: unknown key (value 3); the nearest "
                                             "known key is warmup.min_steps"),
                                   HasSubstr("capcity: unknown key (value 5); the nearest known "
                                             "key is cache.capacity")));
}

TEST(Config, NamesASectionWhereThatIsNearest) {
  EXPECT_THAT(parse_config(R"({"warm_up": {}})", "inline").errors,
              ElementsAre("inline: warm_up: unknown key (value {}); the nearest known key is "
                          "warmup"));
}

TEST(Config, SaysInItsOwnWordsWhatNumberIsTooLarge) {
  EXPECT_THAT(parse_config(R"({"budget": 1e999})", "inline").errors,
              ElementsAre("inline: number '1e999': too large, expected one that a double holds "
                          "(up to 1.8e308)"));
}

TEST(Config, RefusesRepeatedKeysAtEveryDepth) {
  EXPECT_THAT(fixture("bad/repeated_key.json").errors,
              UnorderedElementsAre(HasSubstr("cache: given twice"),
                                   HasSubstr("cache.capacity: given twice")));
}

TEST(Config, SameNameInTwoObjectsIsNotARepetition) {
  const ParsedConfig parsed = parse_config(R"({"a": [{"x": 1}, {"x": 2}], "b": {"x": 3}})", "t");
  EXPECT_THAT(parsed.errors, Not(Contains(HasSubstr("twice"))));
}

TEST(Config, SyntaxErrorNamesFileLineAndColumn) {
  const ParsedConfig parsed = fixture("bad/syntax.json");
  ASSERT_THAT(parsed.errors, SizeIs(1));
  EXPECT_THAT(parsed.errors[0], AllOf(HasSubstr("syntax.json: line 4, column 3: "),
                                      HasSubstr("expected string literal")));
}

TEST(Config, OddTextsAreErrorsAndNeverThrow) {
  const std::string nul_inside("{\"policy\": \"a\0b\"}", 17);
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("null"), std::string("{\"budget\": 1e999}"),
        std::string("\xff\xfe"), std::string("{\"\xff\": 1}"), std::string(100'000, '['),
        std::string("{\"cache\": {\"capacity\": 18446744073709551615}}"), nul_inside,
        std::string("{\"state_file\": \"a\\u0000b\"}")}) {
    EXPECT_FALSE(parse_config(text, "odd").ok()) << text.substr(0, 40);
  }
}

TEST(Config, RefusesSectionsThatAreNotObjects) {
  EXPECT_THAT(fixture("bad/section_types.json").errors,
              UnorderedElementsAre(HasSubstr("cache: 5, expected an object"),
                                   HasSubstr("planner: [], expected an object")));
  EXPECT_THAT(fixture("bad/top_level.json").errors,
              ElementsAre(HasSubstr("top level: [], expected an object")));
}

TEST(Config, WarmupLengthsMustBeInOrder) {
  EXPECT_THAT(
      fixture("bad/warmup_order.json").errors,
      ElementsAre(HasSubstr("warmup.min_steps: 31, expected at most warmup.max_steps, 30")));
}

TEST(Config, MissingFileAndFolderAreErrorsThatNameThePath) {
  EXPECT_THAT(load_config(source_dir() / "configs/none.json").errors,
              ElementsAre(HasSubstr("none.json: cannot be read")));
  EXPECT_FALSE(load_config(source_dir() / "configs").ok());
}

TEST(Config, ResultJoinsAllErrors) {
  const auto result = parse_config(R"({"x": 1, "y": 2})", "two").result();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(result.error().message, StartsWith("two: x: "));
  EXPECT_THAT(result.error().message, HasSubstr("\ntwo: y: "));
}

TEST(Config, PolicyGrammarIsChecked) {
  for (const char* text : {"none", "pudica:menu=keep+full", "mimose:rule=code:buffer=0.1"}) {
    EXPECT_TRUE(parse_config("{\"policy\": \"" + std::string(text) + "\"}", "p").ok()) << text;
  }
  for (const char* text : {"", ":", "a:", "a:b", "a:b=", "a:=c", "a=b", "a,b", "A", "a::b=c"}) {
    EXPECT_FALSE(parse_config("{\"policy\": \"" + std::string(text) + "\"}", "p").ok()) << text;
  }
}

TEST(Config, CompilesToTheControllersOptions) {
  const ParsedConfig parsed = fixture("good/every_key.json");
  const ControllerOptions options = compile_controller_options(parsed.config);
  EXPECT_EQ(options.warmup_mode, WarmupMode::kSheltered);
  EXPECT_EQ(options.warmup_min_steps, 3);
  EXPECT_EQ(options.warmup_max_steps, 3);
  EXPECT_EQ(options.warmup_fit_error, 1.0);
  EXPECT_EQ(options.margin_revocation_rate, 0.5);
  EXPECT_THAT(options.menu, ElementsAre(Mode::Kind::kFull, Mode::Kind::kKeep));
  EXPECT_EQ(options.planner.frontier_cells, 4096);
  EXPECT_EQ(options.predictor.forgetting, 0.95);
  EXPECT_EQ(options.predictor.max_samples_per_segment, 4);
  EXPECT_EQ(options.cache.capacity, 1);
}

// The file's defaults and the library's own must not drift apart.
TEST(Config, DefaultsCompileToTheLibrarysDefaults) {
  const ControllerOptions compiled = compile_controller_options(Config{});
  const ControllerOptions library;
  EXPECT_EQ(compiled.warmup_mode, library.warmup_mode);
  EXPECT_EQ(compiled.warmup_min_steps, library.warmup_min_steps);
  EXPECT_EQ(compiled.warmup_max_steps, library.warmup_max_steps);
  EXPECT_EQ(compiled.warmup_fit_error, library.warmup_fit_error);
  EXPECT_EQ(compiled.margin_revocation_rate, library.margin_revocation_rate);
  EXPECT_EQ(compiled.planner.frontier_cells, library.planner.frontier_cells);
  EXPECT_EQ(compiled.predictor.forgetting, library.predictor.forgetting);
  EXPECT_EQ(compiled.predictor.max_samples_per_segment, library.predictor.max_samples_per_segment);
  EXPECT_EQ(compiled.cache.capacity, library.cache.capacity);
  EXPECT_THAT(compiled.menu,
              ElementsAre(Mode::Kind::kKeep, Mode::Kind::kSelective, Mode::Kind::kFull));
}

TEST(Budget, ReadsAutoBytesAndFractions) {
  EXPECT_EQ(parse_budget("auto")->kind, BudgetSetting::Kind::kAuto);
  EXPECT_EQ(parse_budget("600MiB")->bytes, Bytes(std::int64_t{600} << 20));
  EXPECT_EQ(parse_budget("1.5GB")->bytes, Bytes(1'500'000'000));
  EXPECT_EQ(parse_budget("4096")->bytes, Bytes(4096));
  EXPECT_EQ(parse_budget("0.4")->fraction, 0.4);
  EXPECT_EQ(parse_budget("0.0")->kind, BudgetSetting::Kind::kFraction);
  EXPECT_EQ(parse_budget("1.0")->fraction, 1.0);
  for (const char* text : {"", "0", "-1", "1.5", "-0.1", "0.4.1", "auto ", "nan", "0MiB"}) {
    EXPECT_FALSE(parse_budget(text).has_value()) << text;
  }
}

TEST(Budget, ReadsAPlaceBetweenRecomputingAndKeeping) {
  for (const auto& [text, fraction] : std::map<std::string, double>{
           {"between(0.4)", 0.4}, {"between(0)", 0}, {"between(1)", 1}, {"between(1.0)", 1}}) {
    const auto budget = parse_budget(text);
    ASSERT_TRUE(budget.has_value()) << text;
    EXPECT_EQ(budget->kind, BudgetSetting::Kind::kBetween) << text;
    EXPECT_EQ(budget->fraction, fraction) << text;
  }
  for (const char* text : {"between", "between()", "between(1.1)", "between(-0.1)", "between(nan)",
                           "between(0.4", "between 0.4", "between(0.4) "}) {
    EXPECT_FALSE(parse_budget(text).has_value()) << text;
  }
}

TEST(Budget, PrintsWhatItReads) {
  for (const char* text : {"auto", "600MiB", "1", "0.4", "0.0", "1.0", "0.30000000000000004",
                           "between(0.4)", "between(0)", "between(1)"}) {
    const auto budget = parse_budget(text);
    ASSERT_TRUE(budget.has_value()) << text;
    const auto again = parse_budget(to_string(*budget));
    ASSERT_TRUE(again.has_value()) << to_string(*budget);
    EXPECT_EQ(*again, *budget) << text;
  }
}

TEST(Budget, JsonNumberWithAPointIsAFraction) {
  EXPECT_EQ(fixture("good/budget_fraction.json").config.budget.fraction, 0.4);
  EXPECT_EQ(fixture("good/budget_bytes.json").config.budget.bytes, Bytes(600'000'000));
  EXPECT_THAT(fixture("bad/budget_fraction.json").errors, ElementsAre(HasSubstr("budget: 1.5")));
}

TEST(Config, DeepNestingAndLongNamesAreRefusedInAShortMessage) {
  const ParsedConfig deep = parse_config("{\"budget\":" + std::string(1000000, '['), "inline");
  ASSERT_THAT(deep.errors, SizeIs(1));
  EXPECT_THAT(deep.errors[0], HasSubstr("nested deeper"));
  const ParsedConfig named = parse_config("{\"" + std::string(100000, 'k') + "\":1}", "inline");
  ASSERT_THAT(named.errors, SizeIs(1));
  EXPECT_LT(named.errors[0].size(), 500U);
}

}  // namespace
}  // namespace pudica
