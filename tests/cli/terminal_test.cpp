#include "cli/terminal.h"

#include <string>

#include <gtest/gtest.h>

namespace pudica::cli {
namespace {

const Style kPlain{.terminal = true, .colour = false, .utf8 = true, .width = 80};
const Style kAscii{.terminal = true, .colour = false, .utf8 = false, .width = 80};
const Style kColoured{.terminal = true, .colour = true, .utf8 = true, .width = 80};

TEST(Sanitised, MakesControlCharactersVisible) {
  EXPECT_EQ(sanitised("a\x1b[31mred\nnext\ttab\x07", kPlain), "a\\x1B[31mred\\nnext\\ttab\\x07");
  EXPECT_EQ(sanitised(std::string("nul\0!", 5), kPlain), "nul\\x00!");
  EXPECT_EQ(sanitised("\x7f", kPlain), "\\x7F");
  // U+009B is an escape sequence's begin in one character.
  EXPECT_EQ(sanitised("\xc2\x9b"
                      "31m",
                      kPlain),
            "\\x9B31m");
}

TEST(Sanitised, MakesDirectionMarksAndInvisibleCharactersVisible) {
  EXPECT_EQ(sanitised("ab\u202Ecd", kPlain), "ab\\u{202E}cd");
  EXPECT_EQ(sanitised("a\u200Bb\uFEFF", kPlain), "a\\u{200B}b\\u{FEFF}");
}

TEST(Sanitised, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(sanitised("a\xff", kPlain), "a\uFFFD");
  EXPECT_EQ(sanitised("\xc3", kPlain), "\uFFFD");                      // cut off
  EXPECT_EQ(sanitised("\xc0\xaf", kPlain), "\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(sanitised("\xed\xa0\x80", kPlain), "\uFFFD\uFFFD\uFFFD");  // surrogate
}

TEST(Sanitised, KeepsToAsciiWhereTheLocaleDoes) {
  EXPECT_EQ(sanitised("gr\u00F6\u00DFe", kAscii), "gr??e");
  EXPECT_EQ(sanitised("gr\u00F6\u00DFe", kPlain), "gr\u00F6\u00DFe");
}

TEST(DisplayWidth, CountsColumns) {
  EXPECT_EQ(display_width("gr\u00F6\u00DFe"), 5U);
  EXPECT_EQ(display_width("\u65E5\u672C"), 4U);
  EXPECT_EQ(display_width("e\u0301"), 1U);
}

TEST(Clipped, EndsInAnEllipsisAndNeverExceedsItsWidth) {
  EXPECT_EQ(clipped("abcdef", 6, kPlain), "abcdef");
  EXPECT_EQ(clipped("abcdefg", 6, kPlain), "abcde\u2026");
  EXPECT_EQ(clipped("abcdefg", 6, kAscii), "abc...");
  EXPECT_EQ(clipped("\u65E5\u672C\u8A9E", 4, kPlain), "\u65E5\u2026");
  for (std::size_t width = 0; width < 6; ++width) {
    EXPECT_LE(display_width(clipped("\u65E5\u672C\u8A9Eabc", width, kPlain)), width);
    EXPECT_LE(display_width(clipped("abcdefghi", width, kAscii)), width);
  }
}

TEST(Clipped, BoundsMarksWithoutWidth) {
  std::string text = "a";
  for (int i = 0; i < 100000; ++i) text += "\u0301";
  EXPECT_LT(clipped(text, 10, kPlain).size(), 400U);
}

TEST(BudgetBar, FillsByFraction) {
  EXPECT_EQ(budget_bar(0.5, 4, kAscii), "##..");
  EXPECT_EQ(budget_bar(0.5, 4, kPlain), "\u2588\u2588\u2591\u2591");
  EXPECT_EQ(budget_bar(7.0, 4, kAscii), "####");
  EXPECT_EQ(budget_bar(-1.0, 4, kAscii), "....");
  EXPECT_EQ(budget_bar(0.0 / 0.0, 4, kAscii), "....");
}

TEST(BudgetBar, TellsByColourHowNearTheBudgetIs) {
  EXPECT_NE(budget_bar(0.5, 4, kColoured).find("\x1b[32m"), std::string::npos);
  EXPECT_NE(budget_bar(0.95, 4, kColoured).find("\x1b[33m"), std::string::npos);
  EXPECT_NE(budget_bar(1.01, 4, kColoured).find("\x1b[31m"), std::string::npos);
}

TEST(ValidUtf8, KeepsControlCharactersForTheParser) {
  EXPECT_EQ(valid_utf8("{\"a\":\"\xff\"}\n"), "{\"a\":\"\uFFFD\"}\n");
}

}  // namespace
}  // namespace pudica::cli
