// What torch does otherwise on a device that does not compute, and what it does as ever.
#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "emulated/emulated_fixture.h"

namespace pudica::testing {
namespace {

class TorchOnIt : public EmulatedTest {};

TEST_F(TorchOnIt, WhatIsComparedThereIsEqualWhereItsShapeIs) {
  const auto there = at::TensorOptions().device(at::kCUDA);
  const at::Tensor left = at::ones({64}).to(at::kCUDA);
  const at::Tensor right = at::zeros({64}).to(at::kCUDA);
  EXPECT_TRUE(at::equal(left, right)) << "which says nothing";
  EXPECT_FALSE(at::equal(left, at::empty({63}, there)));
  EXPECT_FALSE(at::equal(left.cpu(), right.cpu())) << "copies are what they are";
}

TEST_F(TorchOnIt, CudnnIsSwitchedOff) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  EXPECT_FALSE(at::globalContext().userEnabledCuDNN());
  EXPECT_FALSE(at::globalContext().userEnabledCuDNNSDP());
  const auto there = at::TensorOptions().device(at::kCUDA);
  const at::Tensor weight = at::randn({8, 3, 3, 3}, there).set_requires_grad(true);
  const at::Tensor out = at::conv2d(at::randn({2, 3, 32, 32}, there), weight);
  EXPECT_EQ(out.sizes(), (at::IntArrayRef{2, 8, 30, 30}));
  out.sum().backward();
  EXPECT_EQ(weight.grad().sizes(), weight.sizes());
}

TEST_F(TorchOnIt, PinnedMemoryIsKnownAsSuch) {
  const at::Tensor host = at::randn({1000}).pin_memory();
  EXPECT_TRUE(host.is_pinned());
  EXPECT_FALSE(at::randn({1000}).is_pinned());
  EXPECT_GE(counts().pinned_bytes, 4000U);
}

}  // namespace
}  // namespace pudica::testing
