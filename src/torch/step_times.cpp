#include "torch/step_times.h"

#include <cstdint>
#include <map>
#include <utility>

namespace pudica::hooks {
namespace {

struct Sum {
  WorkTime time;
  WorkTime forward;  // of the same calls, where `time` is what running them again took
  std::int64_t calls = 0;

  [[nodiscard]] double mean(double seconds) const { return seconds / static_cast<double>(calls); }
};

}  // namespace

StepTimes sum_times(const std::vector<RecordedCall>& calls) {
  std::map<std::uint16_t, Sum> forwards;
  std::map<std::pair<std::uint16_t, Mode>, Sum> recomputes;
  for (const RecordedCall& call : calls) {
    if (call.collected || call.on_trial) continue;
    if (!call.forward.empty()) {
      Sum& sum = forwards[call.layer_class];
      sum.time.add(call.forward);
      ++sum.calls;
    }
    if (call.mode == Mode::keep() || call.disturbed || call.recovery.empty()) continue;
    Sum& sum = recomputes[{call.layer_class, call.mode}];
    sum.time.add(call.recovery);
    sum.forward.add(call.forward);
    ++sum.calls;
  }
  StepTimes out;
  for (auto& [layer_class, sum] : forwards) {
    const auto seconds = sum.time.seconds();
    if (!seconds) {
      const SegmentKey key{SegmentKind::kForward, layer_class, Mode::keep(), 0};
      out.late.push_back({key, std::move(sum.time), sum.calls});
    } else if (*seconds > 0) {
      out.forwards.push_back({layer_class, sum.mean(*seconds)});
    }
  }
  for (auto& [of, sum] : recomputes) {
    const auto seconds = sum.time.seconds();
    if (!seconds) {
      const SegmentKey key{SegmentKind::kRecompute, of.first, of.second, 0};
      out.late.push_back({key, std::move(sum.time), sum.calls});
    } else if (*seconds > 0) {
      const double forward = sum.forward.seconds().value_or(0);
      out.recomputes.push_back({of.first, of.second, sum.mean(*seconds), sum.mean(forward)});
    }
  }
  return out;
}

}  // namespace pudica::hooks
