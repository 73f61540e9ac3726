#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config.h"

namespace pudica {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

EnvironmentLookup lookup_in(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

TEST(Environment, OverridesTheFile) {
  ParsedConfig parsed = parse_config(R"({"budget": "1GiB", "log": {"level": "info"}})", "file");
  const ConfigErrors errors = apply_environment(
      lookup_in({{"PUDICA_BUDGET", "0.5"}, {"PUDICA_LOG", "debug"}, {"PUDICA_SOCKET", "a.sock"}}),
      parsed.config);
  EXPECT_THAT(errors, IsEmpty());
  EXPECT_EQ(parsed.config.budget.fraction, 0.5);
  EXPECT_EQ(parsed.config.log.level, "debug");
  EXPECT_EQ(parsed.config.daemon.socket, "a.sock");
}

TEST(Environment, UnsetAndEmptyVariablesChangeNothing) {
  Config config;
  EXPECT_THAT(apply_environment(lookup_in({}), config), IsEmpty());
  EXPECT_THAT(apply_environment(lookup_in({{"PUDICA_BUDGET", ""}, {"PUDICA_LOG", ""}}), config),
              IsEmpty());
  EXPECT_EQ(config, Config{});
}

TEST(Environment, RefusedValuesAreAllReportedAndLeaveTheirKeys) {
  Config config;
  const ConfigErrors errors =
      apply_environment(lookup_in({{"PUDICA_BUDGET", "lots"}, {"PUDICA_LOG", "loud"}}), config);
  EXPECT_THAT(errors, ElementsAre(StartsWith("PUDICA_BUDGET: \"lots\", expected "),
                                  StartsWith("PUDICA_LOG: \"loud\", expected ")));
  EXPECT_EQ(config, Config{});
}

TEST(Environment, ReadsTheProcess) {
  EXPECT_TRUE(process_environment("PUDICA_SOURCE_DIR").has_value());
  EXPECT_FALSE(process_environment("PUDICA_NO_SUCH_VARIABLE").has_value());
}

}  // namespace
}  // namespace pudica
