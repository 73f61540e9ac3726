// What a layer computed is told from what nobody wrote.
#include "torch/new_memory.h"

#include <random>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

using hooks::MemoryPattern;
using hooks::PatternGuard;
using hooks::same_where_written;

// The same code twice, as a layer's forward and its trial.
template <typename Layer>
bool reproduces(const Layer& layer) {
  at::Tensor forward;
  at::Tensor again;
  {
    const PatternGuard pattern(MemoryPattern::kForward);
    forward = layer(1);
  }
  {
    const PatternGuard pattern(MemoryPattern::kAgain);
    again = layer(2);
  }
  return same_where_written(forward, again);
}

TEST(NewMemory, OfWhatNobodyWroteNothingIsAsked) {
  for (const auto type :
       {at::kBool, at::kByte, at::kHalf, at::kFloat, at::kDouble, at::kLong, at::kComplexDouble}) {
    EXPECT_TRUE(reproduces([type](int) { return at::empty({33}, type); })) << type;
    EXPECT_TRUE(reproduces([type](int) { return at::empty({}, type); })) << type;
    EXPECT_TRUE(reproduces([type](int) { return at::zeros({33}, type); })) << type;
  }
}

TEST(NewMemory, WhatIsWrittenIsComparedAmongWhatIsNot) {
  const auto padded = [](int difference_at) {
    return [difference_at](int run) {
      at::Tensor out = at::empty({64}, at::kFloat);
      out.narrow(0, 0, 50).fill_(3);
      if (difference_at >= 0) out[difference_at] = static_cast<float>(run);
      return out;
    };
  };
  EXPECT_TRUE(reproduces(padded(-1)));
  EXPECT_FALSE(reproduces(padded(0)));
  EXPECT_FALSE(reproduces(padded(49)));
  EXPECT_FALSE(reproduces(padded(63))) << "written by both, differently";
  EXPECT_FALSE(reproduces([](int run) {
    at::Tensor out = at::empty({8}, at::kFloat);
    if (run == 1) out.zero_();
    return out;
  })) << "written by one of them";
}

TEST(NewMemory, ThePatternGoesWithItsGuard) {
  EXPECT_EQ(hooks::pattern_of_new_memory(), MemoryPattern::kNone);
  {
    const PatternGuard outer(MemoryPattern::kForward);
    const PatternGuard inner(MemoryPattern::kAgain);
    EXPECT_EQ(hooks::pattern_of_new_memory(), MemoryPattern::kAgain);
  }
  EXPECT_EQ(hooks::pattern_of_new_memory(), MemoryPattern::kNone);
}

}  // namespace
}  // namespace pudica::testing
