// The CUDA meter against the allocator's own statistics, and frames on a device.
#include <c10/cuda/CUDACachingAllocator.h>

#include "cuda/cuda_fixture.h"
#include "torch/registry.h"

namespace pudica::testing {
namespace {

TEST_F(CudaTest, MeterAgreesWithTheAllocator) {
  const auto stats = [] {
    const auto all = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    return all.active_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  };
  EXPECT_EQ(meter_->in_use_bytes(), stats().current);
  const auto before = stats().peak;
  meter_->reset_peak();
  const at::Tensor block = at::empty({1 << 20}, on_device());
  EXPECT_EQ(meter_->in_use_bytes(), stats().current);
  EXPECT_GE(meter_->peak_bytes(), meter_->in_use_bytes());
  EXPECT_GE(stats().peak, before) << "the user's own peak is not reset";
}

TEST_F(CudaTest, KeptAndRecomputedLayersGiveTheSame) {
  step(options());
  const Result kept = step(options());
  const Result full = step(options(/*store=*/false));
  expect_equal(kept, full);
  EXPECT_LT(full.peak_bytes, kept.peak_bytes);
}

TEST_F(CudaTest, RevokedLayersGiveTheSame) {
  const Result kept = step(options());
  const auto registry = std::make_shared<hooks::Registry>(*meter_);
  auto revocable = options();
  revocable.registry = registry;
  meter_->set_pressure_callback([registry](std::int64_t bytes) { return registry->revoke(bytes); });
  meter_->set_cap(meter_->in_use_bytes() + kept.peak_bytes * 3 / 4, /*refuse=*/false);
  const Result under = step(revocable);
  meter_->set_cap(0, false);
  meter_->set_pressure_callback(nullptr);
  expect_equal(kept, under);
}

}  // namespace
}  // namespace pudica::testing
