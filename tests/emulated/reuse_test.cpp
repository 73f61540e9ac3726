// torch's allocators on a device that does its work when its streams get there: what they may reuse
// and what they must not, and that forgetting to tell them is seen.
#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "emulated/emulated_fixture.h"

namespace pudica::testing {
namespace {

class Reuse : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    if (!IsSkipped()) at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  }

  // Copies a tensor of ones out on a stream of its own, drops it, and has the next one of its size
  // set to zero on the current stream. What arrived on the host.
  static at::Tensor copied_out_and_reused(bool tell_the_allocator) {
    const auto side = c10::cuda::getStreamFromPool(false, 0);
    at::Tensor block = at::ones({kElements}).to(at::kCUDA);
    at::Tensor host = at::zeros({kElements}).pin_memory();
    at::cuda::CUDAEvent filled;
    filled.record();
    filled.block(side);
    {
      const c10::cuda::CUDAStreamGuard guard(side);
      host.copy_(block, /*non_blocking=*/true);
    }
    if (tell_the_allocator) block.record_stream(side.unwrap());
    const void* const address = block.data_ptr();
    block = at::Tensor();
    const at::Tensor next = at::empty({kElements}, at::TensorOptions().device(at::kCUDA));
    EXPECT_EQ(next.data_ptr() == address, !tell_the_allocator);
    // Not by a kernel, which would do nothing.
    EXPECT_EQ(cudaMemsetAsync(next.mutable_data_ptr(), 0, next.nbytes(),
                              c10::cuda::getCurrentCUDAStream()),
              cudaSuccess);
    c10::cuda::device_synchronize();
    return host;
  }

  static constexpr std::int64_t kElements = 4 << 20;
};

TEST_F(Reuse, ABlockThatAnotherStreamReadsIsNotReused) {
  EXPECT_TRUE(at::equal(copied_out_and_reused(true), at::ones({kElements})));
}

TEST_F(Reuse, ABlockWhoseReaderNobodyToldOfIsSeen) {
  EXPECT_FALSE(at::equal(copied_out_and_reused(false), at::ones({kElements})));
}

TEST_F(Reuse, PinnedMemoryIsNotReusedBeforeItsCopyIsDone) {
  at::Tensor host = at::ones({kElements}).pin_memory();
  const void* const address = host.data_ptr();
  const at::Tensor there = host.to(at::kCUDA, /*non_blocking=*/true);
  host = at::Tensor();
  at::Tensor next = at::empty({kElements}).pin_memory();
  EXPECT_NE(next.data_ptr(), address);
  next.zero_();
  EXPECT_TRUE(at::equal(there.cpu(), at::ones({kElements})));
  next = at::Tensor();
  next = at::empty({kElements}).pin_memory();
  EXPECT_EQ(next.data_ptr(), address) << "or that one's own: both are free by now";
}

TEST_F(Reuse, ABlockIsFreeOnceTheOthersStreamIsDone) {
  namespace caching = c10::cuda::CUDACachingAllocator;
  const auto active = [] {
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return caching::getDeviceStats(0).active_bytes[kAll].current;
  };
  const auto side = c10::cuda::getStreamFromPool(false, 0);
  at::Tensor block = at::ones({kElements}).to(at::kCUDA);
  const std::int64_t held = active();
  {
    const c10::cuda::CUDAStreamGuard guard(side);
    at::empty({kElements}).pin_memory().copy_(block, true);
  }
  block.record_stream(side.unwrap());
  block = at::Tensor();
  EXPECT_EQ(active(), held);
  constexpr double kTenSeconds = 1e7;
  spend(kTenSeconds);
  const at::Tensor small = at::empty({1}, at::TensorOptions().device(at::kCUDA));
  EXPECT_EQ(active(), 512) << "looked after its events";
}

}  // namespace
}  // namespace pudica::testing
