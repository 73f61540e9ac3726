// What a step's layers took: which steps are timed, and what their times teach.
#include <cstdint>
#include <vector>

#include "torch/session.h"

namespace pudica::hooks {
namespace {

// Of a device that works on its own every so many steps are timed: an event costs microseconds. In
// these no layer is passed by.
constexpr std::uint64_t kTimedEvery = 8;
// Of a class's time on the device, told by learning steps alone.
constexpr double kNewTimeWeight = 0.5;

}  // namespace

bool Session::is_timed() const { return step_ % kTimedEvery == 0; }

WorkTimer Session::timer_of_step() const {
  if (!clock_) return WorkTimer(host_clock_);
  return decision_.record || is_timed() ? WorkTimer(host_clock_, clock_) : WorkTimer::off();
}

// What a class takes decides which is revoked first. On a device of its own the host's time is but
// a first guess.
void Session::learn_times() {
  for (const Call& call : calls_) {
    if (call.passed_by) continue;
    double& known = class_forward_us_[call.layer_class];
    if (clock_ && known > 0) continue;
    known = known == 0 ? call.forward_us : known + 0.1 * (call.forward_us - known);
  }
}

void Session::learn_late_times() {
  if (!clock_) return;
  contain("the times of the device", [this] {
    const std::vector<SegmentTime> times = late_times_.take();
    constexpr double kUsPerSecond = 1e6;
    for (const SegmentTime& time : times) {
      if (time.key.kind != SegmentKind::kForward || time.seconds <= 0) continue;
      double& known = class_forward_us_[time.key.layer_class];
      known += kNewTimeWeight * (kUsPerSecond * time.seconds - known);
    }
    if (!times.empty() && !policy_failed_) options_.policy->learn_times(times);
  });
}

}  // namespace pudica::hooks
