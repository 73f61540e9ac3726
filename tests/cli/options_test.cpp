#include "cli/options.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pudica::cli {
namespace {

using testing::HasSubstr;

std::string error_of(const std::vector<std::string>& words) {
  const auto line = parse_command_line(words);
  return line ? "" : line.error().message;
}

TEST(CommandLine, TakesGlobalOptionsBeforeAndAfterTheCommand) {
  for (const auto& words : {std::vector<std::string>{"--json", "--socket", "/s", "status", "train"},
                            std::vector<std::string>{"status", "train", "--json", "--socket=/s"}}) {
    const auto line = parse_command_line(words);
    ASSERT_TRUE(line.has_value());
    EXPECT_EQ(line->arguments.command, "status");
    EXPECT_EQ(line->arguments.run, "train");
    EXPECT_EQ(line->arguments.socket, "/s");
    EXPECT_TRUE(line->arguments.json);
  }
}

TEST(CommandLine, ReadsShapeBeforeRun) {
  const auto line = parse_command_line({"explain", "12x384", "train", "--budget", "600MiB"});
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->arguments.shape, "12x384");
  EXPECT_EQ(line->arguments.run, "train");
  EXPECT_EQ(line->arguments.budget, "600MiB");
}

TEST(CommandLine, LeavesWhatFollowsTheDashesToTheProgram) {
  const auto line =
      parse_command_line({"run", "--budget", "1GiB", "--", "python", "--json", "--", "status"});
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->arguments.program,
            (std::vector<std::string>{"python", "--json", "--", "status"}));
  EXPECT_FALSE(line->arguments.json);
}

TEST(CommandLine, NamesCommandsInTwoWords) {
  const auto line = parse_command_line({"config", "check", "a.json"});
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->arguments.command, "config check");
  EXPECT_EQ(line->arguments.file, "a.json");
}

TEST(CommandLine, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(error_of({"statsu"}), HasSubstr("did you mean 'status'?"));
  EXPECT_THAT(error_of({"status", "--colour"}), HasSubstr("pudica status --help"));
  EXPECT_THAT(error_of({"explain"}), HasSubstr("SHAPE"));
  EXPECT_THAT(error_of({"budget", "train"}), HasSubstr("BYTES"));
  EXPECT_THAT(error_of({"run", "python"}), HasSubstr("--"));
  EXPECT_THAT(error_of({"run"}), HasSubstr("expected -- and the command"));
  EXPECT_THAT(error_of({"status", "--", "x"}), HasSubstr("only `pudica run`"));
  EXPECT_THAT(error_of({"completion", "tcsh"}), HasSubstr("tcsh"));
  EXPECT_THAT(error_of({"top", "--interval", "0"}), HasSubstr("interval"));
  EXPECT_THAT(error_of({"config"}), HasSubstr("pudica config --help"));
  EXPECT_THAT(error_of({"config"}), HasSubstr("check or show"));
  EXPECT_THAT(error_of({"config", "chekc", "a"}), HasSubstr("did you mean 'check'?"));
  EXPECT_THAT(error_of({"status", "--jsn"}), HasSubstr("did you mean '--json'?"));
  EXPECT_THAT(error_of({"--jsn", "status"}), HasSubstr("did you mean '--json'?"));
  EXPECT_THAT(error_of({"explain", "1x2", "--budgte=3"}), HasSubstr("did you mean '--budget'?"));
  EXPECT_THAT(error_of({"--json"}), HasSubstr("command"));
}

TEST(CommandLine, HelpIsACommandToo) {
  const auto text_of = [](const std::vector<std::string>& words) {
    const auto line = parse_command_line(words);
    return line ? line->print : line.error().message;
  };
  EXPECT_EQ(text_of({"help"}), text_of({"--help"}));
  EXPECT_EQ(text_of({"help", "status"}), text_of({"status", "--help"}));
  EXPECT_EQ(text_of({"help", "config", "check"}), text_of({"config", "check", "--help"}));
  EXPECT_THAT(text_of({"help", "statsu"}), HasSubstr("did you mean 'status'?"));
  EXPECT_EQ(text_of({"--socket", "/s", "--help"}), text_of({"--help"}));
  const auto run = parse_command_line({"status", "help"});
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->arguments.run, "help");
}

TEST(CommandLine, HelpOfEveryCommandHasExamplesAndExitCodes) {
  for (const CommandWords& words : command_words()) {
    std::vector<std::string> line;
    if (words.name != "pudica") {
      const auto space = words.name.find(' ');
      line.push_back(words.name.substr(0, space));
      if (space != std::string::npos) line.push_back(words.name.substr(space + 1));
    }
    line.emplace_back("--help");
    const auto help = parse_command_line(line);
    ASSERT_TRUE(help.has_value()) << words.name;
    EXPECT_THAT(help->print, HasSubstr("Exit codes: 0 done")) << words.name;
    if (words.name != "pudica") {
      EXPECT_THAT(help->print, HasSubstr("Examples:")) << words.name;
    }
  }
}

TEST(CommandWords, HoldEveryCommandOfTheInterface) {
  const auto all = command_words();
  for (const char* name :
       {"status", "plans", "explain", "estimate", "budget", "group", "models", "models rm", "prune",
        "replay", "report", "config check", "config show", "doctor", "run", "top", "completion"}) {
    EXPECT_TRUE(std::ranges::any_of(all, [name](const auto& words) { return words.name == name; }))
        << name;
  }
}

}  // namespace
}  // namespace pudica::cli
