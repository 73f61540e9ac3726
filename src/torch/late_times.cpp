#include "torch/late_times.h"

#include <optional>
#include <utility>

namespace pudica::hooks {
namespace {

// Nothing: the device has not come to all of them.
std::optional<std::vector<SegmentTime>> times_of(const LateTimes::Step& step) {
  const std::vector<LateSegment>& segments = step.segments;
  std::vector<SegmentTime> times;
  times.reserve(segments.size());
  // The last first: a step under way is then given up at once.
  for (std::size_t k = segments.size(); k-- > 0;) {
    const LateSegment& segment = segments[k];
    const auto seconds = segment.time.seconds();
    if (!seconds) return std::nullopt;
    times.push_back(
        {segment.key, step.shape, *seconds / static_cast<double>(segment.layers), step.number});
  }
  return times;
}

}  // namespace

void LateTimes::add(const StepContext& context, std::vector<LateSegment> segments) {
  if (segments.empty()) return;
  if (steps_.size() == kMostSteps) steps_.pop_front();
  steps_.push_back({context.shape, context.step, std::move(segments)});
}

std::vector<SegmentTime> LateTimes::take() {
  std::vector<SegmentTime> taken;
  while (!steps_.empty()) {
    auto times = times_of(steps_.front());
    if (!times) break;
    taken.insert(taken.end(), times->rbegin(), times->rend());
    steps_.pop_front();
  }
  return taken;
}

}  // namespace pudica::hooks
