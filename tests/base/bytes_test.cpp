#include "pudica/bytes.h"

#include <limits>

#include <gtest/gtest.h>

namespace pudica {
namespace {

TEST(Bytes, ReadsEveryUnitRegardlessOfCaseAndSpace) {
  EXPECT_EQ(parse_bytes("4096")->count(), 4096);
  EXPECT_EQ(parse_bytes("4096B")->count(), 4096);
  EXPECT_EQ(parse_bytes("600MiB")->count(), 600LL * 1024 * 1024);
  EXPECT_EQ(parse_bytes("1.5GB")->count(), 1'500'000'000);
  EXPECT_EQ(parse_bytes("18 gb")->count(), 18'000'000'000);
}

TEST(Bytes, RefusesWhatIsNoByteCountAndNamesIt) {
  for (const char* text :
       {"", "MiB", "12QB", "1.2.3MB", "-5MB", "99999999999TiB", "0x10", "0.5", "4096.0"}) {
    const auto result = parse_bytes(text);
    ASSERT_FALSE(result.has_value()) << text;
    EXPECT_NE(result.error().message.find("'" + std::string(text) + "'"), std::string::npos);
  }
}

TEST(Bytes, ThrowsOnOverflowInsteadOfWrapping) {
  const Bytes most(std::numeric_limits<std::int64_t>::max());
  EXPECT_THROW(most + Bytes(1), std::overflow_error);
  EXPECT_THROW(most * 2, std::overflow_error);
  EXPECT_EQ((Bytes(3) - Bytes(5)).count(), -2);
}

TEST(Bytes, FormatsWithABinaryUnit) {
  EXPECT_EQ(format_bytes(Bytes(512)), "512 B");
  EXPECT_EQ(format_bytes(Bytes(642'252'800)), "612.5 MiB");
}

}  // namespace
}  // namespace pudica
