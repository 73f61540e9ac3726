// Segments that grow and shrink by pages: turned on with a budget, and off with it again.
#include "cuda/expandable_segments.h"

#include <string>

#include <c10/core/AllocatorConfig.h>

#include "cuda/cuda_fixture.h"

namespace pudica::testing {
namespace {

using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

class ExpandableSegmentsTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    before_ = c10::CachingAllocator::getAllocatorSettings();
    say("large_segment_size_mb:20");  // torch's own; what a call does not name stays
    if (!meter_->expand_segments().empty()) GTEST_SKIP() << "this driver maps no pages";
    say("expandable_segments:False,large_segment_size_mb:20");
    say("max_split_size_mb:200");
  }
  void TearDown() override {
    if (meter_ != nullptr) meter_->set_cap(0, false);
    say("expandable_segments:False,large_segment_size_mb:20");
    say(before_);
  }

  static void say(const std::string& settings) {
    c10::CachingAllocator::setAllocatorSettings(settings);
  }
  static bool are_on() { return Config::use_expandable_segments(); }
  static std::string settings() { return c10::CachingAllocator::getAllocatorSettings(); }
  static constexpr std::size_t kSplitBytes = std::size_t{200} << 20U;
  static constexpr std::int64_t kCap = std::int64_t{1} << 30U;

 private:
  std::string before_;
};

TEST_F(ExpandableSegmentsTest, AreOnWhileThereIsACapAndLeaveTheOtherSettings) {
  meter_->set_cap(kCap, false);
  EXPECT_TRUE(are_on());
  EXPECT_EQ(Config::max_split_size(), kSplitBytes);
  meter_->set_cap(kCap / 2, true);
  EXPECT_TRUE(are_on());
  meter_->set_cap(0, false);
  EXPECT_FALSE(are_on());
  EXPECT_EQ(settings(), "max_split_size_mb:200");
  EXPECT_EQ(Config::max_split_size(), kSplitBytes);
}

TEST_F(ExpandableSegmentsTest, AreOffWhereTheUserSaysSo) {
  say("expandable_segments:False");
  meter_->set_cap(kCap, false);
  EXPECT_FALSE(are_on());
  meter_->set_cap(0, false);
  EXPECT_FALSE(are_on());
  EXPECT_EQ(settings(), "expandable_segments:False");
}

// What is in use anywhere in a page, or in a segment, holds all of it.
TEST_F(ExpandableSegmentsTest, PagesAreSmallWhileThereIsACap) {
  for (const char* const users : {"", "expandable_segments:False", "max_split_size_mb:200"}) {
    say(users);
    meter_->set_cap(kCap, false);
    EXPECT_EQ(Config::large_segment_size(), hooks::ExpandableSegments::kPageBytes) << users;
    meter_->set_cap(0, false);
    EXPECT_EQ(Config::large_segment_size(), std::size_t{20} << 20U) << users;
    EXPECT_EQ(settings(), users);
  }
}

TEST_F(ExpandableSegmentsTest, PagesStayWhereTheUserNamesThemOrHasSome) {
  say("large_segment_size_mb:32");
  meter_->set_cap(kCap, false);
  EXPECT_TRUE(are_on());
  EXPECT_EQ(Config::large_segment_size(), std::size_t{32} << 20U);
  meter_->set_cap(0, false);
  EXPECT_EQ(Config::large_segment_size(), std::size_t{32} << 20U);
  say("expandable_segments:True,large_segment_size_mb:20");
  say("expandable_segments:True");
  meter_->set_cap(kCap, false);
  EXPECT_EQ(Config::large_segment_size(), std::size_t{20} << 20U) << "segments keep their pages";
}

TEST_F(ExpandableSegmentsTest, StayOnWhereTheUserHadThemOn) {
  say("expandable_segments:True");
  meter_->set_cap(kCap, false);
  meter_->set_cap(0, false);
  EXPECT_TRUE(are_on());
}

TEST_F(ExpandableSegmentsTest, WhatTheUserSetsUnderACapHolds) {
  meter_->set_cap(kCap, false);
  say("expandable_segments:True,max_split_size_mb:300");
  meter_->set_cap(0, false);
  EXPECT_TRUE(are_on());
  EXPECT_EQ(settings(), "expandable_segments:True,max_split_size_mb:300");
}

// Torch remembers settings that it could not read.
TEST_F(ExpandableSegmentsTest, SettingsThatCannotBeSaidAgainHurtNobody) {
  EXPECT_ANY_THROW(say("no_such_setting:1"));
  EXPECT_NO_THROW(meter_->set_cap(kCap, false));
  EXPECT_FALSE(are_on());
  EXPECT_NO_THROW(meter_->set_cap(0, false));
  const auto asked = expand_segments(device_);
  ASSERT_FALSE(asked);
  EXPECT_NE(asked.error().message.find("no_such_setting"), std::string::npos);
}

TEST_F(ExpandableSegmentsTest, AreOnForGoodWhereTheyAreInsistedOn) {
  say("expandable_segments:False,max_split_size_mb:200");
  meter_->set_cap(kCap, false);
  EXPECT_EQ(meter_->expand_segments(), "");
  EXPECT_TRUE(are_on());
  EXPECT_EQ(Config::max_split_size(), kSplitBytes);
  const std::string once = settings();
  EXPECT_EQ(meter_->expand_segments(), "");
  EXPECT_EQ(settings(), once);
  meter_->set_cap(0, false);
  EXPECT_TRUE(are_on());
}

TEST_F(ExpandableSegmentsTest, AreOffUnderACapOfAFewPages) {
  meter_->set_cap(kCap, false);
  meter_->set_cap(kCap / 16, false);
  EXPECT_FALSE(are_on());
  meter_->set_cap(kCap, false);
  EXPECT_TRUE(are_on());
}

// Several devices share the setting.
TEST_F(ExpandableSegmentsTest, AreOnWhileOneOfTheDevicesHasACap) {
  hooks::Meter* const other = hooks::meter_for(at::Device(at::kCUDA, 1));
  if (other == nullptr) GTEST_SKIP() << "one CUDA device";
  meter_->set_cap(kCap, false);
  other->set_cap(kCap, false);
  meter_->set_cap(0, false);
  EXPECT_TRUE(are_on());
  other->set_cap(0, false);
  EXPECT_FALSE(are_on());
}

class WithoutPages : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || !meter_->expand_segments().empty()) return;
    c10::CachingAllocator::setAllocatorSettings("expandable_segments:False");
    GTEST_SKIP() << "this driver maps pages";
  }
};

TEST_F(WithoutPages, SegmentsStayAsTheyAre) {
  meter_->set_cap(std::int64_t{1} << 30U, false);
  const at::Tensor some = at::empty({1 << 20}, on_device());
  EXPECT_FALSE(Config::use_expandable_segments());
  meter_->set_cap(0, false);
  const auto asked = expand_segments(at::Device(at::kCUDA));
  ASSERT_FALSE(asked);
  EXPECT_NE(asked.error().message.find("cannot map memory by pages"), std::string::npos);
}

TEST(SegmentsOfTheCpu, AreNothingToAskFor) {
  const auto asked = expand_segments(at::Device(at::kCPU));
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pudica::testing
