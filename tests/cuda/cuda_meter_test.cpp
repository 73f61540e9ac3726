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

TEST_F(CudaTest, RecomputedLayersNeedLess) {
  step(options());
  const Result kept = step(options());
  EXPECT_LT(step(options(/*store=*/false)).peak_bytes, kept.peak_bytes);
}

TEST_F(CudaTest, KeptAndRecomputedLayersGiveTheSame) {
  PUDICA_NEEDS_VALUES();
  const Result kept = step(options());
  expect_equal(kept, step(options(/*store=*/false)));
}

// A step whose layers may be taken back, under a cap of three quarters of what it needs.
class CappedCudaTest : public CudaTest {
 protected:
  Result step_under_cap(const Result& kept) {
    registry_ = std::make_shared<hooks::Registry>(*meter_);
    auto revocable = options();
    revocable.registry = registry_;
    meter_->set_pressure_callback([this](std::int64_t bytes) { return registry_->revoke(bytes); });
    meter_->set_cap(meter_->in_use_bytes() + kept.peak_bytes * 3 / 4, /*refuse=*/false);
    Result under = step(revocable);
    meter_->set_cap(0, false);
    meter_->set_pressure_callback(nullptr);
    return under;
  }

  std::shared_ptr<hooks::Registry> registry_;
};

TEST_F(CappedCudaTest, RevokedLayersNeedLess) {
  // Not from the cache, whose blocks are there without asking.
  const Result kept = step(options());
  c10::cuda::CUDACachingAllocator::emptyCache();
  const Result under = step_under_cap(kept);
  EXPECT_GT(registry_->revocations(), 0);
  EXPECT_LT(under.peak_bytes, kept.peak_bytes);
}

TEST_F(CappedCudaTest, RevokedLayersGiveTheSame) {
  PUDICA_NEEDS_VALUES();
  const Result kept = step(options());
  c10::cuda::CUDACachingAllocator::emptyCache();
  expect_equal(kept, step_under_cap(kept));
}

}  // namespace
}  // namespace pudica::testing
