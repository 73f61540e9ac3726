// Two devices (PUDICA_EMULATED_DEVICES=2): memory, streams and allocators of their own, and copies
// between them in the order of their streams.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "emulated/emulated_fixture.h"

namespace pudica::testing {
namespace {

class Devices : public EmulatedTest {
 protected:
  static at::TensorOptions on(c10::DeviceIndex index) {
    return at::TensorOptions().device(c10::Device(c10::DeviceType::CUDA, index));
  }
  static std::int64_t free_on(c10::DeviceIndex index) {
    const c10::cuda::CUDAGuard guard(index);
    return free_bytes();
  }
};

TEST_F(Devices, HaveMemoryOfTheirOwn) {
  ASSERT_EQ(c10::cuda::device_count(), 2);
  const std::int64_t first = free_on(0);
  const std::int64_t second = free_on(1);
  const at::Tensor there = at::empty({64 * kMiB}, on(1).dtype(at::kByte));
  EXPECT_EQ(free_on(0), first);
  EXPECT_EQ(free_on(1), second - 64 * kMiB);
  EXPECT_THROW(at::empty({second}, on(1).dtype(at::kByte)), c10::OutOfMemoryError);
  EXPECT_NO_THROW(at::empty({first - kGiB}, on(0).dtype(at::kByte)));
}

TEST_F(Devices, CopyToEachOtherBehindWhatTheirStreamsDo) {
  const at::Tensor sent = at::randn({4 << 20});
  const at::Tensor first = sent.pin_memory().to(c10::Device(c10::DeviceType::CUDA, 0), true);
  const at::Tensor second = first.to(c10::Device(c10::DeviceType::CUDA, 1), true);
  EXPECT_TRUE(at::equal(second.cpu(), sent));
}

TEST_F(Devices, WaitForEachOthersEvents) {
  const at::Tensor sent = at::randn({4 << 20});
  const at::Tensor pinned = sent.pin_memory();
  at::Tensor first = at::zeros({4 << 20}).to(c10::Device(c10::DeviceType::CUDA, 0));
  const auto there = c10::cuda::getStreamFromPool(false, 1);
  at::Tensor back = at::zeros({4 << 20}).pin_memory();
  c10::cuda::device_synchronize();
  first.copy_(pinned, true);
  at::cuda::CUDAEvent done;
  done.record(c10::cuda::getCurrentCUDAStream(0));
  done.block(there);
  ASSERT_EQ(cudaMemcpyAsync(back.mutable_data_ptr(), first.const_data_ptr(), first.nbytes(),
                            cudaMemcpyDefault, there),
            cudaSuccess);
  there.synchronize();
  EXPECT_TRUE(at::equal(back, sent));
}

}  // namespace
}  // namespace pudica::testing
