#include "pudica/mode.h"

#include <gtest/gtest.h>

namespace pudica {
namespace {

TEST(Mode, PrintsAndReadsEveryKind) {
  for (const Mode mode : {Mode::keep(), Mode::full(), Mode::offload(), Mode::selective(7)}) {
    EXPECT_EQ(*parse_mode(to_string(mode)), mode);
  }
}

TEST(Mode, RefusesUnknownNames) {
  for (const char* text : {"", "Keep", "selective", "selective:", "selective:x", "selective:-1"}) {
    EXPECT_FALSE(parse_mode(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace pudica
