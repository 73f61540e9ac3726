// What a layer computed is told from what nobody wrote.
#include "torch/new_memory.h"

#include <random>
#include <utility>

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

// As of torch's FakeTensorMode: on the CPU by what they say, and there is nothing.
TEST(NewMemory, TensorsWithoutDataAreNotTheSame) {
  constexpr std::int64_t kFloats = 16;
  const auto standing = [] {
    auto nothing = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), c10::SymInt(4 * kFloats),
        at::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)), nullptr, false);
    return at::empty({0}).set_(c10::Storage(std::move(nothing)), 0, {kFloats}, {});
  };
  const at::Tensor real = at::zeros({kFloats});
  using Compare = bool (*)(const at::Tensor&, const at::Tensor&);
  for (const Compare same : {Compare{hooks::same_bits}, Compare{same_where_written}}) {
    EXPECT_FALSE(same(standing(), standing()));
    EXPECT_FALSE(same(standing(), real));
    EXPECT_FALSE(same(real, standing()));
    EXPECT_TRUE(same(real, real.clone()));
  }
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
