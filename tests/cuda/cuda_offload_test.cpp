// The host tier of a CUDA device: same numbers, less on the device, all of it given back.
#include "cuda/cuda_fixture.h"
#include "torch/host_tier.h"

namespace pudica::testing {
namespace {

TEST_F(CudaTest, OffloadedLayersLeaveTheDevice) {
  step(options());
  const Result kept = step(options());
  auto offload = options();
  offload.host = hooks::make_host_tier(device_, {});
  ASSERT_NE(offload.host, nullptr);
  EXPECT_LT(step(offload).peak_bytes, kept.peak_bytes);
  EXPECT_GT(offload.host->pool().peak_bytes(), 0);
  EXPECT_EQ(offload.host->in_use_bytes(), 0);
}

TEST_F(CudaTest, OffloadedLayersGiveTheSame) {
  PUDICA_NEEDS_VALUES();
  const Result kept = step(options());
  auto offload = options();
  offload.host = hooks::make_host_tier(device_, {});
  // Copies race with what computes, if anything does.
  for (int i = 0; i < 10; ++i) expect_equal(kept, step(offload));
}

TEST_F(CudaTest, WithoutRoomOnTheHostLayersStay) {
  step(options());
  const Result kept = step(options());
  auto offload = options();
  offload.host = hooks::make_host_tier(device_, {.host_bytes = Bytes(1024)});
  EXPECT_EQ(step(offload).peak_bytes, kept.peak_bytes);
  EXPECT_EQ(offload.host->pool().peak_bytes(), 0);
}

TEST_F(CudaTest, LayersThatHadNoRoomOnTheHostGiveTheSame) {
  PUDICA_NEEDS_VALUES();
  const Result kept = step(options());
  auto offload = options();
  offload.host = hooks::make_host_tier(device_, {.host_bytes = Bytes(1024)});
  expect_equal(kept, step(offload));
}

TEST_F(CudaTest, WhatWasCopiedOutAndBackIsTheSame) {
  const auto host = hooks::make_host_tier(device_, {});
  const at::Tensor sent = at::randn({1 << 22});
  const at::Tensor block = sent.to(device_);
  const auto copy = host->store(block.storage());
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(host->fence(), 0) << "only the device waits";
  const c10::Storage back = host->load(*copy);
  EXPECT_EQ(host->arrive(), 0);
  at::Tensor again = at::empty({0}, on_device());
  again.set_(back, 0, block.sizes(), block.strides());
  EXPECT_TRUE(at::equal(again.cpu(), sent)) << "compared on the host";
}

}  // namespace
}  // namespace pudica::testing
