// Times of a device that works on its own: told when it has come there, never waited for.
#include "torch/late_times.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>

#include <gtest/gtest.h>

#include "torch/session_fixture.h"
#include "torch/work_clock.h"

namespace pudica::testing {
namespace {

// It has come as far as the test says; every reading is a millisecond after the one before.
struct SlowDevice {
  static inline std::atomic<std::int64_t> given{0};
  static inline std::atomic<std::int64_t> done{0};
  static void catch_up() { done.store(given.load()); }

  class Instant final : public hooks::DeviceInstant {
   public:
    Instant() : number_(++given) {}
    [[nodiscard]] std::optional<double> seconds_since(const DeviceInstant& begin) const override {
      const auto& from = static_cast<const Instant&>(begin);
      if (number_ > done.load() || from.number_ > done.load()) return std::nullopt;
      return 1e-3 * static_cast<double>(number_ - from.number_);
    }

   private:
    std::int64_t number_;
  };

  class Clock final : public hooks::DeviceClock {
   public:
    std::shared_ptr<const hooks::DeviceInstant> now() noexcept override {
      return std::make_shared<Instant>();
    }
  };

  static std::shared_ptr<hooks::DeviceClock> make(c10::Device /*device*/) {
    return std::make_shared<Clock>();
  }
};

class LateTimes : public SessionTest {
 protected:
  LateTimes() {
    hooks::register_device_clock(c10::DeviceType::CPU, &SlowDevice::make);
    SlowDevice::catch_up();
    clock_ = nullptr;
    policy_->plan = plan_of({Mode::full(), Mode::keep(), Mode::full(), Mode::keep()});
    policy_->plan->revocable = false;
  }
  ~LateTimes() override { hooks::register_device_clock(c10::DeviceType::CPU, nullptr); }
};

TEST_F(LateTimes, SegmentsOfARecordedStepAreToldAtOnceAndTheirTimesLater) {
  auto handle = attach_with(0);
  policy_->record = true;
  train_step(*handle, /*length=*/24);
  const auto segments = policy_->outcomes.back().segments;
  ASSERT_GT(segments.size(), 8U);
  EXPECT_EQ(policy_->contexts.back().step, 1U);
  for (const auto& segment : segments) EXPECT_EQ(segment.sample.seconds, 0);
  policy_->record = false;
  train_step(*handle, 16);
  EXPECT_TRUE(policy_->late.empty()) << "the device is not there yet";
  SlowDevice::catch_up();
  train_step(*handle, 16);
  ASSERT_EQ(policy_->late.size(), 1U);
  const auto& times = policy_->late.front();
  ASSERT_EQ(times.size(), segments.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(times[i].key, segments[i].key);
    EXPECT_EQ(times[i].shape, (ShapeKey{2, 24}));
    EXPECT_EQ(times[i].step, policy_->contexts[0].step);
    EXPECT_GT(times[i].seconds, 0);
  }
  train_step(*handle, 16);
  EXPECT_EQ(policy_->late.size(), 1U) << "told once";
}

TEST_F(LateTimes, OfStepsThatAreNotRecordedEveryEighthTellsWhatRunningLayersTook) {
  auto handle = attach_with(0);
  for (int i = 1; i <= 17; ++i) {
    train_step(*handle);
    SlowDevice::catch_up();
    EXPECT_TRUE(policy_->outcomes.back().recomputes.empty());
    EXPECT_TRUE(policy_->outcomes.back().forwards.empty());
  }
  ASSERT_EQ(policy_->late.size(), 2U);
  for (const auto& times : policy_->late) {
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[0].key.kind, SegmentKind::kForward);
    EXPECT_DOUBLE_EQ(times[0].seconds, 1e-3) << "the mean of four layers, of one stretch each";
    EXPECT_EQ(times[1].key.kind, SegmentKind::kRecompute);
    EXPECT_EQ(times[1].key.mode, Mode::full());
    EXPECT_DOUBLE_EQ(times[1].seconds, 1e-3) << "the mean of two layers, of one stretch each";
  }
}

TEST_F(LateTimes, CopiesToTheHostAndBackAreTimedOnTheDevice) {
  auto handle = attach_with(0);
  policy_->record = true;
  policy_->plan->modes[2] = Mode::offload();
  train_step(*handle);
  SlowDevice::catch_up();
  train_step(*handle);
  ASSERT_EQ(policy_->late.size(), 1U);
  double copied = 0;
  for (const SegmentTime& time : policy_->late.front()) {
    if (time.key.kind == SegmentKind::kRecompute && time.key.mode == Mode::offload()) {
      copied = time.seconds;
    }
  }
  EXPECT_GE(copied, 2e-3) << "the copies out, and at least one back";
}

TEST_F(LateTimes, ADeviceThatIsFarBehindHoldsNothingUp) {
  auto handle = attach_with(0);
  policy_->record = true;
  for (std::int64_t i = 0; i < 40; ++i) train_step(*handle, 16 + i);
  EXPECT_TRUE(policy_->late.empty());
  EXPECT_EQ(policy_->outcomes.size(), 40U);
  SlowDevice::catch_up();
  train_step(*handle);
  std::set<ShapeKey> told;
  for (const SegmentTime& time : policy_->late.at(0)) told.insert(time.shape);
  EXPECT_EQ(told.size(), 16U) << "the oldest were given up";
  EXPECT_TRUE(told.contains(ShapeKey{2, 55}));
  EXPECT_EQ(handle->failures(), 0);
}

TEST_F(LateTimes, APolicyThatFailsOnThemLeavesTrainingAlone) {
  auto handle = attach_with(0);
  const auto expected = train_step(*handle);
  policy_->record = true;
  policy_->fail_in = "learn_times";
  train_step(*handle);
  SlowDevice::catch_up();
  expect_equal(expected, train_step(*handle));
  EXPECT_EQ(handle->failures(), 1);
}

TEST(WorkTime, IsKnownWhenAllOfItIs) {
  const hooks::WorkTimer timer(hooks::HostClock{}, std::make_shared<SlowDevice::Clock>());
  hooks::WorkTime time;
  EXPECT_TRUE(time.empty());
  EXPECT_EQ(time.seconds(), 0.0);
  SlowDevice::catch_up();
  const hooks::WorkInstant begin = timer.now();
  const hooks::WorkInstant end = timer.now();
  time.add(begin, end);
  EXPECT_FALSE(time.seconds().has_value());
  SlowDevice::catch_up();
  EXPECT_DOUBLE_EQ(*time.seconds(), 1e-3);
  hooks::WorkTime sum;
  sum.add(0.5);
  sum.add(time);
  EXPECT_DOUBLE_EQ(*sum.seconds(), 0.501);
  sum.add(timer.now(), timer.now());
  EXPECT_FALSE(sum.seconds().has_value());
}

TEST(WorkTime, OfATimerThatIsOffNothingIsAdded) {
  const hooks::WorkTimer off = hooks::WorkTimer::off();
  EXPECT_FALSE(off.reads_host());
  hooks::WorkTime time;
  time.add(off.now(), off.now());
  EXPECT_TRUE(time.empty());
  const hooks::WorkTimer host;
  EXPECT_TRUE(host.reads_host());
  time.add(host.now(), off.now());
  EXPECT_TRUE(time.empty()) << "readings of two clocks have nothing between them";
}

}  // namespace
}  // namespace pudica::testing
