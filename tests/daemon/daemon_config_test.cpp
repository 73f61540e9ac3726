#include "daemon/daemon_config.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/options.h"
#include "inspect/json_values.h"

namespace pudica::daemon {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string source_file(const std::string& name) {
  const char* const root = std::getenv("PUDICA_SOURCE_DIR");
  std::ifstream file(std::string(root == nullptr ? "." : root) + "/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(DaemonConfig, SampleFileNamesEveryKeyWithItsDefault) {
  const std::string text = source_file("configs/pudicad.json");
  const ParsedDaemonConfig parsed = parse_daemon_config(text, "pudica.json");
  EXPECT_THAT(parsed.errors, testing::IsEmpty());
  EXPECT_EQ(parsed.config, DaemonConfig());
  const auto json = inspect::Json::parse(text);
  const std::string document = source_file("docs/daemon.md");
  for (const std::string& key : daemon_config_keys()) {
    const std::size_t dot = key.find('.');
    const bool named = dot == std::string::npos
                           ? json.contains(key)
                           : json.at(key.substr(0, dot)).contains(key.substr(dot + 1));
    EXPECT_TRUE(named) << key;
    EXPECT_THAT(document, HasSubstr("| `" + key + "` |"));
  }
}

TEST(DaemonConfig, ReadsEveryKindOfValue) {
  const ParsedDaemonConfig parsed = parse_daemon_config(
      R"({"socket":"s","listen":"127.0.0.1:1","allow_remote":true,"run_timeout_seconds":2.5,
          "limits":{"runs":7,"database_bytes":"2MiB"},"groups":{"gpu0":"40GiB","gpu1":5}})",
      "f");
  EXPECT_THAT(parsed.errors, testing::IsEmpty());
  EXPECT_EQ(parsed.config.limits.runs, 7);
  EXPECT_EQ(parsed.config.limits.database_bytes, Bytes(2 << 20));
  EXPECT_EQ(parsed.config.groups.at("gpu0"), Bytes(std::int64_t{40} << 30));
  EXPECT_EQ(parsed.config.run_timeout_seconds, 2.5);
}

TEST(DaemonConfig, ReportsAllErrorsAtOnce) {
  const ParsedDaemonConfig parsed = parse_daemon_config(
      R"({"sockets":"s","log_level":"loud","limits":{"runs":0,"run":1},"groups":{"g":"x"},
          "run_timeout_seconds":0})",
      "f.json");
  EXPECT_THAT(parsed.errors,
              testing::UnorderedElementsAre(
                  AllOf(HasSubstr("f.json: sockets: unknown key"),
                        HasSubstr("nearest known key is socket")),
                  AllOf(HasSubstr("log_level: \"loud\""), HasSubstr("expected off")),
                  AllOf(HasSubstr("limits.runs: 0"), HasSubstr("1 to 4096")),
                  AllOf(HasSubstr("limits.run: unknown"), HasSubstr("limits.runs")),
                  HasSubstr("groups: {\"g\":\"x\"}"), HasSubstr("run_timeout_seconds: 0")));
  EXPECT_FALSE(parsed.result());
}

TEST(DaemonConfig, SyntaxErrorsHaveTheirPlace) {
  EXPECT_THAT(parse_daemon_config("{\n  \"socket\": }", "f").errors,
              ElementsAre(HasSubstr("line 2")));
  EXPECT_THAT(parse_daemon_config(R"({"socket":"a","socket":"b"})", "f").errors,
              ElementsAre(HasSubstr("given twice")));
  EXPECT_THAT(parse_daemon_config("[]", "f").errors, ElementsAre(HasSubstr("expected an object")));
  EXPECT_THAT(load_daemon_config("/nonexistent.json").errors, ElementsAre(HasSubstr("cannot be")));
}

TEST(DaemonOptions, CommandLineWinsOverTheFile) {
  const char* const argv[] = {"pudicad", "--socket", "given", "--allow-remote"};
  const auto parsed = parse_options(4, argv);
  const auto& options = std::get<Options>(parsed);
  const DaemonConfig config = read_config(options).value();
  EXPECT_EQ(config.socket, "given");
  EXPECT_TRUE(config.allow_remote);
  EXPECT_EQ(config.log_level, "info");
}

TEST(DaemonOptions, HelpAndMistakesEndWithTheirExitCodes) {
  const auto ended = [](std::vector<const char*> argv) {
    argv.insert(argv.begin(), "pudicad");
    return std::get<Finished>(parse_options(static_cast<int>(argv.size()), argv.data()));
  };
  EXPECT_EQ(ended({"--help"}).exit_code, 0);
  EXPECT_THAT(ended({"--help"}).text, AllOf(HasSubstr("examples:"), HasSubstr("exit codes:")));
  EXPECT_THAT(ended({"--version"}).text, HasSubstr("pudicad 0."));
  EXPECT_EQ(ended({"--sokcet", "x"}).exit_code, 2);
  EXPECT_EQ(ended({"--log-level", "loud"}).exit_code, 2);
}

}  // namespace
}  // namespace pudica::daemon
