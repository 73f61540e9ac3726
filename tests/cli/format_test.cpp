#include "cli/format.h"

#include <gtest/gtest.h>

namespace pudica::cli {
namespace {

TEST(BytesText, HasAUnit) {
  EXPECT_EQ(bytes_text(642252800), "612.5 MiB");
  EXPECT_EQ(bytes_text(std::nullopt), "-");
}

TEST(DurationText, ChoosesItsUnit) {
  EXPECT_EQ(duration_text(0.0), "0 s");
  EXPECT_EQ(duration_text(0.00085), "850 us");
  EXPECT_EQ(duration_text(0.0124), "12.4 ms");
  EXPECT_EQ(duration_text(0.9996), "1 s");
  EXPECT_EQ(duration_text(1.25), "1.25 s");
  EXPECT_EQ(duration_text(125.0), "2 min 05 s");
  EXPECT_EQ(duration_text(3600.0 * 3 + 60 * 7), "3 h 07 min");
  EXPECT_EQ(duration_text(86400.0 * 4 + 7200), "4 d 2 h");
  EXPECT_EQ(duration_text(1e300), "11574074074 d 1 h");
  EXPECT_EQ(duration_text(std::nullopt), "-");
  EXPECT_EQ(duration_text(0.0 / 0.0), "-");
}

TEST(AgeText, CountsFromTheTimeOfTheDaemon) {
  const auto now = parse_time("2026-01-01T12:00:09Z");
  ASSERT_TRUE(now.has_value());
  EXPECT_EQ(age_text("2026-01-01T12:00:06Z", *now), "3 s ago");
  EXPECT_EQ(age_text("2026-01-01T11:40:00Z", *now), "20 min ago");
  EXPECT_EQ(age_text("2025-12-30T12:00:00Z", *now), "2 d ago");
  EXPECT_EQ(age_text("2026-01-01T13:00:00Z", *now), "now");
  EXPECT_EQ(age_text("yesterday", *now), "-");
  EXPECT_EQ(age_text("", *now), "-");
}

}  // namespace
}  // namespace pudica::cli
