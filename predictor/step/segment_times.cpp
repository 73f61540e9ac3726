// What steps teach the segment store of times.
#include <cstdint>
#include <map>
#include <utility>

#include "predictor/step/segment_store.h"

namespace pudica {
namespace {

// Its time is told by what it takes of its class's forward.
bool is_relative(const SegmentKey& key) {
  return key.kind == SegmentKind::kBackward || key.kind == SegmentKind::kRecompute;
}

// A forward that nothing was added to: packing and copying out are part of a recovery's time.
bool is_plain_forward(const SegmentKey& key) {
  return key.kind == SegmentKind::kForward &&
         (key.mode == Mode::keep() || key.mode == Mode::full());
}

struct Mean {
  double sum = 0;
  std::int64_t count = 0;

  void add(double value) {
    sum += value;
    ++count;
  }
  [[nodiscard]] double value() const { return sum / static_cast<double>(count); }
};

}  // namespace

// What one step took for one segment, the mean over its layers: what disturbs the machine disturbs
// all of them, so they are one sample.
struct SegmentStore::Together {
  Mean seconds;
  Mean forward_seconds;  // of the class; 0: not known

  void add(double taken, double forward) {
    if (!(taken > 0)) return;
    seconds.add(taken);
    forward_seconds.add(forward);
  }
};

// After the bytes: a segment that those have shown to be another is forgotten first.
void SegmentStore::observe_times_of(const StepOutcome& outcome) {
  memo_.clear();
  const ShapeKey& shape = outcome.context.shape;
  std::map<std::uint16_t, Mean> forwards;
  for (const ForwardTime& time : outcome.forwards) forwards[time.layer_class].add(time.seconds);
  for (const SegmentObservation& item : outcome.segments) {
    if (!outcome.forwards.empty() || !is_plain_forward(item.key)) continue;
    if (item.sample.seconds > 0) forwards[item.key.layer_class].add(item.sample.seconds);
  }
  for (const auto& [layer_class, forward] : forwards) {
    relative_times_.observe_forward(layer_class, shape, forward.value());
  }
  std::map<SegmentKey, Together> segments;
  for (const SegmentObservation& item : outcome.segments) {
    if (item.key.kind == SegmentKind::kHead || item.key.kind == SegmentKind::kOptimizer) continue;
    const auto forward = forwards.find(item.key.layer_class);
    segments[normalized(item.key)].add(item.sample.seconds,
                                       forward == forwards.end() ? 0 : forward->second.value());
  }
  for (const auto& [key, taken] : segments) observe_together(key, shape, taken);
}

void SegmentStore::observe_together(const SegmentKey& key, const ShapeKey& shape,
                                    const Together& taken) {
  if (taken.seconds.count == 0) return;
  predictor_->observe_time(key, shape, taken.seconds.value());
  if (!is_relative(key)) return;
  relative_times_.observe(key, shape, taken.seconds.value(), taken.forward_seconds.value());
}

void SegmentStore::observe_times(const ShapeKey& shape, const std::vector<ForwardTime>& forwards,
                                 const std::vector<RecomputeTime>& times) {
  memo_.clear();
  for (const ForwardTime& time : forwards) {
    relative_times_.observe_forward(time.layer_class, shape, time.seconds);
  }
  std::map<SegmentKey, Together> recomputes;
  for (const RecomputeTime& time : times) {
    const SegmentKey key{SegmentKind::kRecompute, time.layer_class, time.mode, 0};
    recomputes[key].add(time.seconds, time.forward_seconds);
  }
  for (const auto& [key, taken] : recomputes) {
    if (predictor_->distinct_shapes(key) == 0) continue;
    observe_together(key, shape, taken);
  }
}

void SegmentStore::observe_times(const std::vector<SegmentTime>& times) {
  memo_.clear();
  std::map<std::pair<std::uint64_t, std::uint16_t>, Mean> forwards;
  std::map<std::uint64_t, const ShapeKey*> shapes;
  for (const SegmentTime& time : times) {
    shapes[time.step] = &time.shape;
    if (is_plain_forward(time.key) && time.seconds > 0) {
      forwards[{time.step, time.key.layer_class}].add(time.seconds);
    }
  }
  for (const auto& [of, forward] : forwards) {
    relative_times_.observe_forward(of.second, *shapes.at(of.first), forward.value());
  }
  std::map<std::pair<std::uint64_t, SegmentKey>, Together> segments;
  for (const SegmentTime& time : times) {
    const SegmentKey key = normalized(time.key);
    const auto forward = forwards.find({time.step, key.layer_class});
    const double of_forward = forward == forwards.end() ? 0 : forward->second.value();
    if (predictor_->distinct_shapes(key) == 0) continue;
    segments[{time.step, key}].add(time.seconds, of_forward);
  }
  for (const auto& [of, taken] : segments) {
    observe_together(of.second, *shapes.at(of.first), taken);
  }
}

}  // namespace pudica
