// A budget on what torch's allocator has reserved: room is made in front of it.
#include <algorithm>
#include <functional>
#include <random>
#include <thread>

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "cuda/block_size.h"
#include "cuda/cuda_fixture.h"

namespace pudica::testing {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

constexpr std::int64_t kMiB = std::int64_t{1} << 20U;

class CudaBudgetTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    // Of fixed sizes, unless the environment says otherwise.
    if (c10::CachingAllocator::getAllocatorSettings().empty()) {
      c10::CachingAllocator::setAllocatorSettings("expandable_segments:False");
    }
    weights_.clear();
    input_ = at::Tensor();
    caching::emptyCache();
    begin_ = reserved();
  }
  void TearDown() override {
    if (meter_ == nullptr) return;
    meter_->set_pressure_callback(nullptr);
    meter_->set_cap(0, false);
  }

  at::Tensor bytes(std::int64_t count) const {
    return at::empty({count}, on_device().dtype(at::kByte));
  }
  static bool expandable() {
    return c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments();
  }
  static constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  static std::int64_t reserved() { return caching::getDeviceStats(0).reserved_bytes[kAll].current; }
  static std::int64_t active() { return caching::getDeviceStats(0).active_bytes[kAll].current; }

  // Over what there was, and a page, which torch may map beyond what it is asked for.
  void set_cap(std::int64_t mib, bool refuse) {
    const std::int64_t page = expandable() ? 20 * kMiB : 0;
    meter_->set_cap(begin_ + mib * kMiB + page, refuse);
  }

  // What is revocable here: tensors, given up one a call, the first first.
  std::vector<at::Tensor> held_;
  int calls_ = 0;
  void give_up_one_a_call() {
    meter_->set_pressure_callback([this](std::int64_t) {
      ++calls_;
      if (held_.empty()) return false;
      held_.erase(held_.begin());
      return true;
    });
  }
  std::int64_t begin_ = 0;
};

TEST_F(CudaBudgetTest, BlocksOfEverySizeAreCountedAndLeaveNothing) {
  const std::int64_t before = meter_->in_use_bytes();
  std::mt19937 random(7);
  std::vector<std::int64_t> sizes{1,         511,           512,          513,
                                  kMiB - 1,  kMiB,          kMiB + 1,     10 * kMiB - 1,
                                  10 * kMiB, 10 * kMiB + 1, 33 * kMiB + 7};
  for (int i = 0; i < 300; ++i) {
    sizes.push_back(1 + static_cast<std::int64_t>(random() % (1U << (4U + random() % 20U))));
  }
  std::vector<at::Tensor> live;
  std::int64_t expected = 0;
  for (const std::int64_t size : sizes) {
    live.push_back(bytes(size));
    expected += hooks::block_bytes(static_cast<std::size_t>(size));
    ASSERT_EQ(meter_->in_use_bytes() - before, expected) << "after " << size << " bytes";
    if (expandable()) {
      ASSERT_EQ(meter_->in_use_bytes(), active()) << "after " << size << " bytes";
    } else {
      ASSERT_LE(meter_->in_use_bytes(), active());
    }
    if (random() % 3 == 0) {
      const std::size_t gone = random() % live.size();
      expected -= hooks::block_bytes(static_cast<std::size_t>(live[gone].nbytes()));
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(gone));
    }
  }
  live.clear();
  EXPECT_EQ(meter_->in_use_bytes(), before);
}

TEST_F(CudaBudgetTest, NothingIsRevokedWhereTheAllocatorsCacheWillDo) {
  give_up_one_a_call();
  held_.push_back(bytes(20 * kMiB));
  bytes(60 * kMiB);  // cached now
  set_cap(100, /*refuse=*/true);
  const at::Tensor other = bytes(70 * kMiB);  // fits none of the cached, which go back first
  EXPECT_EQ(calls_, 0);
  EXPECT_LE(reserved(), meter_->cap_bytes());
}

TEST_F(CudaBudgetTest, RoomIsMadeForWhatDoesNotFit) {
  give_up_one_a_call();
  for (int i = 0; i < 4; ++i) held_.push_back(bytes(20 * kMiB));
  set_cap(80, /*refuse=*/true);
  const at::Tensor wanted = bytes(40 * kMiB);
  EXPECT_EQ(calls_, 2);
  EXPECT_EQ(held_.size(), 2U);
  EXPECT_LE(reserved(), meter_->cap_bytes());
  EXPECT_EQ(meter_->overruns(), 0);
}

TEST_F(CudaBudgetTest, HolesAreNoEndWhileSomethingIsLeftToGiveBack) {
  // Every other block of 4 MiB goes: half of it is free, in pieces that 30 MiB do not fit in.
  give_up_one_a_call();
  std::vector<at::Tensor> all;
  for (int i = 0; i < 40; ++i) all.push_back(bytes(4 * kMiB));
  for (std::size_t i = 0; i < all.size(); i += 2) held_.push_back(std::move(all[i + 1]));
  all.clear();
  meter_->set_cap(reserved(), /*refuse=*/true);
  const at::Tensor wanted = bytes(30 * kMiB);
  EXPECT_TRUE(wanted.defined());
  EXPECT_LE(reserved(), meter_->cap_bytes());
}

TEST_F(CudaBudgetTest, SoftGoesOverWhenNothingIsLeftAndSaysSo) {
  give_up_one_a_call();
  const std::int64_t overruns = meter_->overruns();
  set_cap(30, /*refuse=*/false);
  const at::Tensor over = bytes(50 * kMiB);
  EXPECT_EQ(meter_->overruns(), overruns + 1);
  EXPECT_GE(reserved(), begin_ + 50 * kMiB);
  EXPECT_LE(reserved(), begin_ + 60 * kMiB) << "what was cached is given back first";
  const double share = caching::getMemoryFraction(0);
  EXPECT_LT(share, 1) << "the limit is back";
}

TEST_F(CudaBudgetTest, HardThrowsTorchsErrorAndGoesOnCounting) {
  give_up_one_a_call();
  set_cap(30, /*refuse=*/true);
  const std::int64_t refusals = meter_->refusals();
  const std::int64_t in_use = meter_->in_use_bytes();
  EXPECT_THROW(bytes(50 * kMiB), c10::OutOfMemoryError);
  EXPECT_EQ(meter_->refusals(), refusals + 1);
  EXPECT_EQ(meter_->in_use_bytes(), in_use);
  EXPECT_LE(reserved(), meter_->cap_bytes());
  const at::Tensor fits = bytes(20 * kMiB);
  EXPECT_GT(meter_->in_use_bytes(), in_use);
}

TEST_F(CudaBudgetTest, TheUsersOwnLimitComesBack) {
  caching::setMemoryFraction(0.5, 0);
  set_cap(30, /*refuse=*/true);
  EXPECT_LT(caching::getMemoryFraction(0), 0.5);
  meter_->set_cap(0, false);
  EXPECT_EQ(caching::getMemoryFraction(0), 0.5);
  caching::setMemoryFraction(1.0, 0);
}

TEST_F(CudaBudgetTest, WhoGivesBackHoldsNoLockOfTheAllocators) {
  held_.push_back(bytes(20 * kMiB));
  int calls = 0;
  meter_->set_pressure_callback([&](std::int64_t) {
    if (held_.empty()) return false;
    ++calls;
    std::thread([this] { bytes(kMiB / 2); }).join();  // would wait for ever
    held_.clear();
    return true;
  });
  set_cap(24, /*refuse=*/true);
  const at::Tensor wanted = bytes(20 * kMiB);
  EXPECT_EQ(calls, 1);
}

TEST_F(CudaBudgetTest, PagesOfExpandableSegmentsStayUnderTheCapToo) {
  give_up_one_a_call();
  for (int i = 0; i < 30; ++i) held_.push_back(bytes(7 * kMiB));
  const std::int64_t cap = reserved() + 5 * kMiB;
  meter_->set_cap(cap, /*refuse=*/true);
  meter_->reset_peak();
  for (const int size : {3, 9, 17, 26, 11, 5, 40}) {
    const at::Tensor wanted = bytes(size * kMiB);
    ASSERT_LE(meter_->cache_bytes()->reserved_peak_bytes, cap) << size;
  }
}

// Its free blocks lie apart: all of them go back before one that is larger can be made.
TEST_F(CudaBudgetTest, KnowsWhereTheCacheCouldNotServe) {
  const std::int64_t before = reserved();
  meter_->set_cap(before + 396 * kMiB, /*refuse=*/true);
  if (meter_->cache_bytes()->page_bytes == 0) GTEST_SKIP() << "segments have fixed sizes here";
  for (int i = 0; i < 4; ++i) held_.push_back(bytes(80 * kMiB));
  held_[0] = held_[2] = at::Tensor();
  const at::Tensor served = bytes(60 * kMiB);
  EXPECT_EQ(meter_->cache_bytes()->squeezes, 0);
  held_[0] = bytes(150 * kMiB);
  EXPECT_EQ(meter_->cache_bytes()->squeezes, 1);
  meter_->reset_peak();
  EXPECT_EQ(meter_->cache_bytes()->squeezes, 0);
}

// A block anywhere in a page, or in a segment of a fixed size, holds all of it.
TEST_F(CudaBudgetTest, TheGapIsWhatCannotBeGivenBack) {
  set_cap(400, /*refuse=*/true);
  std::vector<at::Tensor> all;
  for (int i = 0; i < 40; ++i) all.push_back(bytes(4 * kMiB));
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % 5 != 0) all[i] = at::Tensor();
  }
  meter_->reset_peak();
  const auto cache = meter_->cache_bytes();
  ASSERT_TRUE(cache.has_value());
  caching::emptyCache();
  EXPECT_EQ(cache->gap_bytes, reserved() - meter_->in_use_bytes());
  EXPECT_GE(cache->gap_bytes, 8 * kMiB * 7) << "eight blocks, each alone in its page";
  EXPECT_EQ(cache->active_peak_bytes, active());
}

TEST_F(CudaBudgetTest, WhatCannotBeGivenBackIsKnownAfterEveryAllocation) {
  std::mt19937 random(5);
  std::vector<at::Tensor> live;
  for (int i = 0; i < 400; ++i) {
    live.push_back(bytes(1 + static_cast<std::int64_t>(random() % (1U << (6U + random() % 20U)))));
    if (random() % 3 != 0) {
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(random() % live.size()));
    }
    if (i % 20 != 0) continue;
    meter_->reset_peak();
    const std::int64_t pinned = meter_->cache_bytes()->gap_bytes + meter_->in_use_bytes();
    caching::emptyCache();
    ASSERT_EQ(pinned, reserved()) << "after " << i;
  }
}

// A plan may use less of it: a page of expandable segments is never used.
TEST_F(CudaBudgetTest, AReportShowsTheUsersBudget) {
  AttachOptions options;
  options.budget_bytes = Bytes(1024 * kMiB);
  options.device = device_;
  const auto handle = attach(std::move(options));
  ASSERT_TRUE(handle);
  (*handle)->begin_step(ShapeKey{1, 4});
  EXPECT_EQ((*handle)->end_step().budget_bytes, Bytes(1024 * kMiB));
}

}  // namespace
}  // namespace pudica::testing
