// torch's own caching allocator on the emulated device: to the byte what it does on a card.
#include <cstdlib>
#include <string>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "emulated/emulated_fixture.h"

namespace pudica::testing {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

class Allocator : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    if (IsSkipped()) return;
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    caching::emptyCache();
    caching::resetAccumulatedStats(0);
    before_ = counts();
  }

  [[nodiscard]] std::uint64_t refused() const { return counts().refused - before_.refused; }

  static at::Tensor bytes(std::int64_t count) {
    return at::empty({count}, at::TensorOptions().device(at::kCUDA).dtype(at::kByte));
  }
  static constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  static c10::CachingDeviceAllocator::DeviceStats stats() { return caching::getDeviceStats(0); }
  static std::int64_t allocated() { return stats().allocated_bytes[kAll].current; }
  static std::int64_t active() { return stats().active_bytes[kAll].current; }
  static std::int64_t reserved() { return stats().reserved_bytes[kAll].current; }

  EmulatedDeviceCounts before_{};
};

TEST_F(Allocator, RoundsBlocksAndReservesSegmentsAsOnACard) {
  const at::Tensor one = bytes(1);
  EXPECT_EQ(allocated(), 512);
  const at::Tensor more = bytes(513);
  EXPECT_EQ(allocated(), 512 + 1024);
  EXPECT_EQ(reserved(), 2 * kMiB) << "both of one small segment";
  const at::Tensor large = bytes(kMiB + 1);
  EXPECT_EQ(reserved(), 22 * kMiB) << "a large segment is 20 MiB";
  const at::Tensor own = bytes(25 * kMiB + 1);
  EXPECT_EQ(reserved(), (22 + 26) * kMiB) << "one of its own, rounded to 2 MiB";
  EXPECT_EQ(static_cast<std::int64_t>(counts().used_bytes), reserved());
}

TEST_F(Allocator, GivesTheDeviceBackWhatItHasCached) {
  const std::int64_t before = free_bytes();
  bytes(64 * kMiB);
  EXPECT_EQ(allocated(), 0);
  EXPECT_EQ(before - free_bytes(), 64 * kMiB);
  caching::emptyCache();
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(Allocator, FreesItsCacheAndTriesAgainBeforeItIsOutOfMemory) {
  std::vector<at::Tensor> held;
  while (free_bytes() >= 16 * kGiB) held.push_back(bytes(8 * kGiB));
  std::vector<at::Tensor> cached;
  while (free_bytes() >= 3 * kGiB) cached.push_back(bytes(3 * kGiB));
  ASSERT_GE(cached.size(), 3U);
  const auto many = static_cast<std::int64_t>(cached.size());
  cached.clear();
  // Enough is cached, in pieces that do not join.
  const at::Tensor joined = bytes(3 * many * kGiB - kGiB);
  EXPECT_EQ(stats().num_alloc_retries, 1);
  EXPECT_EQ(stats().num_ooms, 0);
  EXPECT_THROW(bytes(8 * kGiB), c10::OutOfMemoryError);
  EXPECT_EQ(stats().num_alloc_retries, 2);
  EXPECT_EQ(stats().num_ooms, 1);
  EXPECT_EQ(refused(), 1U + 2U) << "each before and after the cache was freed";
}

TEST_F(Allocator, IsOutOfMemoryAtItsFraction) {
  std::size_t free = 0;
  std::size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  caching::setMemoryFraction(0.5, 0);
  const auto half = static_cast<std::int64_t>(total / 2);
  const at::Tensor most = bytes(half - 4 * kMiB);
  EXPECT_THROW(bytes(64 * kMiB), c10::OutOfMemoryError);
  caching::setMemoryFraction(1, 0);
  EXPECT_EQ(refused(), 0U) << "the device was not asked";
}

TEST_F(Allocator, ABlockThatAnotherStreamUsesStaysActive) {
  const auto side = c10::cuda::getStreamFromPool(false, 0);
  at::Tensor block = bytes(64 * kMiB);
  caching::recordStream(block.storage().data_ptr(), side);
  const void* address = block.data_ptr();
  block = at::Tensor();
  EXPECT_EQ(allocated(), 0);
  EXPECT_EQ(active(), 64 * kMiB);
  side.synchronize();
  const at::Tensor next = bytes(64 * kMiB);  // looks after its events first
  EXPECT_EQ(next.data_ptr(), address);
  EXPECT_EQ(active(), 64 * kMiB);
}

TEST_F(Allocator, TracesWhatItDoes) {
  static std::vector<caching::TraceEntry::Action> seen;  // trackers are never taken away
  caching::attachAllocatorTraceTracker(
      [](const caching::TraceEntry& entry) { seen.push_back(entry.action_); });
  bytes(64 * kMiB);
  caching::emptyCache();
  using Entry = caching::TraceEntry;
  EXPECT_EQ(seen,
            (std::vector<Entry::Action>{Entry::SEGMENT_ALLOC, Entry::ALLOC, Entry::FREE_REQUESTED,
                                        Entry::FREE_COMPLETED, Entry::SEGMENT_FREE}));
}

class Expandable : public Allocator {};

TEST_F(Expandable, MapsAsMuchAsIsAskedForAndTakesItBack) {
  const std::int64_t before = free_bytes();
  at::Tensor first = bytes(30 * kMiB);
  EXPECT_EQ(reserved(), 40 * kMiB) << "whole pieces of 20 MiB";
  const at::Tensor second = bytes(30 * kMiB);
  EXPECT_EQ(reserved(), 60 * kMiB) << "behind what is there";
  EXPECT_EQ(before - free_bytes(), 60 * kMiB);
  first = at::Tensor();
  caching::emptyCache();
  EXPECT_EQ(reserved(), 40 * kMiB) << "a piece that is half in use stays";
  EXPECT_EQ(before - free_bytes(), 40 * kMiB);
}

TEST_F(Expandable, HoldsBytesInPiecesThatCannotJoinOtherwise) {
  at::Tensor low = bytes(free_bytes() / 4 / (20 * kMiB) * (20 * kMiB));
  at::Tensor high = bytes(free_bytes() / 2 / (20 * kMiB) * (20 * kMiB));
  const std::int64_t room = low.numel() + free_bytes();
  low = at::Tensor();
  const at::Tensor joined = bytes(room / (20 * kMiB) * (20 * kMiB));
  EXPECT_EQ(stats().num_ooms, 0);
  EXPECT_THROW(bytes(64 * kMiB), c10::OutOfMemoryError);
}

TEST_F(Expandable, MemoryThatIsMappedHoldsWhatIsCopiedThere) {
  const at::Tensor host = at::randint(256, {50 * kMiB}, at::kByte);
  const at::Tensor there = host.to(at::kCUDA);
  EXPECT_TRUE(at::equal(there.clone().cpu(), host));
}

}  // namespace
}  // namespace pudica::testing
