// What is left free so that an allocator's cache serves.
#include "torch/cache_comfort.h"

#include <gtest/gtest.h>

namespace pudica::testing {
namespace {

constexpr std::int64_t kCap = 25600;  // 256 parts of 100

TEST(CacheComfort, GrowsWhereTheCacheDoesNotServeUpToAThirtieth) {
  hooks::CacheComfort comfort;
  EXPECT_EQ(comfort.bytes(kCap), 0);
  comfort.note(/*squeezed=*/true);
  EXPECT_EQ(comfort.bytes(kCap), 200);
  for (int i = 0; i < 50; ++i) comfort.note(true);
  EXPECT_EQ(comfort.bytes(kCap), kCap / 32);
  EXPECT_EQ(comfort.bytes(kCap / 10), kCap / 320) << "of whatever the budget is now";
}

TEST(CacheComfort, LessIsTriedEverMoreRarelyWhereItIsMissed) {
  hooks::CacheComfort comfort;
  comfort.note(true);
  const auto steps_until_less = [&comfort] {
    const std::int64_t before = comfort.bytes(kCap);
    int steps = 0;
    for (; comfort.bytes(kCap) == before && steps < 5000; ++steps) comfort.note(false);
    return steps;
  };
  const int first = steps_until_less();
  EXPECT_EQ(comfort.bytes(kCap), 100);
  comfort.note(true);
  EXPECT_EQ(steps_until_less(), 2 * first) << "it was missed";
  comfort.note(true);
  comfort.note(true);
  EXPECT_EQ(steps_until_less(), 4 * first) << "once for both: the second is none of its";
  for (int i = 0; i < 100'000; ++i) comfort.note(false);
  EXPECT_EQ(comfort.bytes(kCap), 0);
  comfort.note(true);
  EXPECT_EQ(steps_until_less(), 4 * first) << "that was long ago";
}

TEST(CacheComfort, WhatDidNotFitIsNotLeftFreeAgain) {
  hooks::CacheComfort comfort;
  for (int i = 0; i < 4; ++i) comfort.note(true);
  EXPECT_EQ(comfort.bytes(kCap), 800);
  comfort.note_misfit(5000, kCap);
  EXPECT_EQ(comfort.bytes(kCap), 800) << "it would not have fitted without";
  comfort.note_misfit(250, kCap);
  EXPECT_EQ(comfort.bytes(kCap), 400);
  for (int i = 0; i < 50; ++i) comfort.note(true);
  EXPECT_EQ(comfort.bytes(kCap), 400);
  comfort.note_misfit(-30, kCap);  // by the margin
  EXPECT_LT(comfort.bytes(kCap), 400);
  for (int i = 0; i < 50; ++i) {
    comfort.note_misfit(1, kCap);
    comfort.note(true);
  }
  EXPECT_EQ(comfort.bytes(kCap), 0) << "a step of another length may need all of it";
}

}  // namespace
}  // namespace pudica::testing
