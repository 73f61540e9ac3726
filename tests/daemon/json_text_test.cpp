#include "daemon/json_text.h"

#include <cmath>

#include <gtest/gtest.h>

#include "inspect/json_values.h"

namespace pudica::daemon {
namespace {

TEST(JsonText, WritesWhatTheLibraryReads) {
  JsonText out;
  out.open('{');
  out.key("text").value("a\"b\\c\n\x01 \xff");
  out.key("numbers").open('[');
  out.value(std::int64_t{-5});
  out.value(std::uint64_t{18446744073709551615U});
  out.value(0.1);
  out.value(std::nan(""));
  out.value(1e300);
  out.value(Bytes(7));
  out.close(']');
  out.key("empty").open('{');
  out.close('}');
  out.key("truth").value(true);
  out.key("absent").value(std::optional<double>());
  out.key("present").value(std::optional<Bytes>(Bytes(3)));
  out.key("no text").text_or_null("");
  out.key("odd \"key\"").raw("[1,2]");
  out.close('}');
  const auto read = inspect::Json::parse(out.take());
  EXPECT_EQ(read["text"], "a\"b\\c\n\x01 \xEF\xBF\xBD");
  EXPECT_EQ(read["numbers"].dump(), "[-5,18446744073709551615,0.1,0,1e+300,7]");
  EXPECT_EQ(read["empty"].dump(), "{}");
  EXPECT_EQ(read["truth"], true);
  EXPECT_TRUE(read["absent"].is_null());
  EXPECT_EQ(read["present"], 3);
  EXPECT_TRUE(read["no text"].is_null());
  EXPECT_EQ(read["odd \"key\""].size(), 2U);
}

}  // namespace
}  // namespace pudica::daemon
