// What is left free so that an allocator's cache serves.
#include "torch/cache_comfort.h"

#include <gtest/gtest.h>

namespace pudica::testing {
namespace {

constexpr std::int64_t kCap = 25600;  // 256 parts of 100

void squeeze(hooks::CacheComfort& comfort, int times = 1) {
  for (int i = 0; i < times; ++i) comfort.note({.squeezed = true}, kCap);
}

TEST(CacheComfort, GrowsWhereTheCacheDoesNotServeUpToAThirtieth) {
  hooks::CacheComfort comfort;
  EXPECT_EQ(comfort.bytes(kCap), 0);
  squeeze(comfort);
  EXPECT_EQ(comfort.bytes(kCap), 200);
  squeeze(comfort, 50);
  EXPECT_EQ(comfort.bytes(kCap), kCap / 32);
  EXPECT_EQ(comfort.bytes(kCap / 10), kCap / 320) << "of whatever the budget is now";
}

TEST(CacheComfort, AStepThatWasNotAsPlannedTellsNothing) {
  hooks::CacheComfort comfort;
  for (int i = 0; i < 50; ++i) comfort.note({.as_planned = false, .squeezed = true}, kCap);
  EXPECT_EQ(comfort.bytes(kCap), 0);
}

TEST(CacheComfort, LessIsTriedEverMoreRarelyWhereItIsMissed) {
  hooks::CacheComfort comfort;
  squeeze(comfort);
  const auto steps_until_less = [&comfort] {
    const std::int64_t before = comfort.bytes(kCap);
    int steps = 0;
    for (; comfort.bytes(kCap) == before && steps < 5000; ++steps) comfort.note({}, kCap);
    return steps;
  };
  const int first = steps_until_less();
  EXPECT_EQ(comfort.bytes(kCap), 100);
  squeeze(comfort);
  EXPECT_EQ(steps_until_less(), 2 * first) << "it was missed";
  squeeze(comfort);
  squeeze(comfort);
  EXPECT_EQ(steps_until_less(), 4 * first) << "once for both: the second is none of its";
  for (int i = 0; i < 100'000; ++i) comfort.note({}, kCap);
  EXPECT_EQ(comfort.bytes(kCap), 0);
  squeeze(comfort);
  EXPECT_EQ(steps_until_less(), 4 * first) << "that was long ago";
}

TEST(CacheComfort, WhatDidNotFitIsNotLeftFreeAgain) {
  hooks::CacheComfort comfort;
  // With layers taken back, as is usual then.
  const auto misses = [&comfort](std::int64_t bytes) {
    comfort.note({.fits = false, .missing_bytes = bytes, .as_planned = false}, kCap);
  };
  squeeze(comfort, 4);
  EXPECT_EQ(comfort.bytes(kCap), 800);
  misses(5000);
  EXPECT_EQ(comfort.bytes(kCap), 800) << "it would not have fitted without";
  misses(250);
  EXPECT_EQ(comfort.bytes(kCap), 400);
  squeeze(comfort, 50);
  EXPECT_EQ(comfort.bytes(kCap), 400);
  misses(-30);  // it did not fit when it was made, and what it stands on sank
  EXPECT_LT(comfort.bytes(kCap), 400);
  for (int i = 0; i < 50; ++i) {
    misses(1);
    squeeze(comfort);
  }
  EXPECT_EQ(comfort.bytes(kCap), 0) << "a step of another length may need all of it";
}

}  // namespace
}  // namespace pudica::testing
