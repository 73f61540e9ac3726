// Memory that is refused although it is there (PUDICA_EMULATED_FAIL_MALLOC): torch's allocator
// tries again, and what fails twice is out of memory.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "emulated/emulated_fixture.h"

namespace pudica::testing {
namespace {

class FailingMalloc : public EmulatedTest {};

TEST_F(FailingMalloc, TheNthIsRefusedOnceAndTriedAgain) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  const auto bytes = [] {
    return at::empty({64 * kMiB}, at::TensorOptions().device(at::kCUDA).dtype(at::kByte));
  };
  const at::Tensor first = bytes();
  EXPECT_EQ(counts().refused, 0U);
  const at::Tensor second = bytes();
  EXPECT_EQ(counts().refused, 1U);
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
  EXPECT_EQ(stats.num_alloc_retries, 1);
  EXPECT_EQ(stats.num_ooms, 0);
}

TEST_F(FailingMalloc, TwiceIsOutOfMemory) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  const auto there = at::TensorOptions().device(at::kCUDA).dtype(at::kByte);
  EXPECT_THROW(at::empty({64 * kMiB}, there), c10::OutOfMemoryError);
  EXPECT_EQ(counts().refused, 2U);
  EXPECT_NO_THROW(at::empty({64 * kMiB}, there));
}

}  // namespace
}  // namespace pudica::testing
