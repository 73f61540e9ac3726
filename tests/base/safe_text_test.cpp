#include "base/safe_text.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"

namespace pudica {
namespace {

TEST(OneLine, EscapesWhatEndsALineSteersATerminalOrHides) {
  EXPECT_EQ(one_line("plain \u00fc text"), "plain \u00fc text");
  EXPECT_EQ(one_line("a\nb\rc\td"), "a\\nb\\rc\\td");
  EXPECT_EQ(one_line("\x1b[2J\x7f"), "\\x1B[2J\\x7F");
  EXPECT_EQ(one_line("\u202egnp\u200b"), "\\u{202E}gnp\\u{200B}");
  EXPECT_EQ(one_line(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(one_line("a\xff\xc0"), "a\ufffd\ufffd");
}

TEST(LogValue, OnlyAPlainWordGoesWithoutQuotes) {
  EXPECT_EQ(log_value("train-1.py:7"), "train-1.py:7");
  EXPECT_EQ(log_value(""), "\"\"");
  EXPECT_EQ(log_value("a b=c"), "\"a b=c\"");
  EXPECT_EQ(log_value("a\" b\\"), "\"a\\\" b\\\\\"");
  EXPECT_EQ(log_value("a\nb"), "\"a\\nb\"");
}

std::vector<std::string>& seen() {
  static std::vector<std::string> lines;
  return lines;
}

TEST(Log, AMessageIsOneLineWhateverItHolds) {
  seen().clear();
  set_log_sink([](LogLevel, std::string_view line) { seen().emplace_back(line); });
  log_warn("run=\nforged\x1b[2J");
  set_log_sink(nullptr);
  EXPECT_THAT(seen(), testing::ElementsAre("run=\\nforged\\x1B[2J"));
}

}  // namespace
}  // namespace pudica
