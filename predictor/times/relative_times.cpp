#include "predictor/times/relative_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace pudica {
namespace {

SegmentKey forward_of(std::uint16_t layer_class) {
  return {SegmentKind::kForward, layer_class, Mode::keep(), 0};
}

// As time fits have it (predictor/monomials.h): the batch times the sum of the other dimensions.
double volume(const ShapeKey& shape) {
  const auto size = [&shape](std::size_t i) {
    return static_cast<double>(std::max<std::int64_t>(1, shape[i]));
  };
  if (shape.size() == 0) return 1;
  double others = shape.size() == 1 ? 1 : 0;
  for (std::size_t i = 1; i < shape.size(); ++i) others += size(i);
  return size(0) * others;
}

// Of what a ratio is kept as: no volume makes a time of it that is too long to be one.
constexpr double kUnit = 1e-9;

bool is_time(double seconds) { return std::isfinite(seconds) && seconds > 0; }

}  // namespace

RelativeTimes::RelativeTimes(PredictorFactory factory)
    : factory_(std::move(factory)), times_(factory_()) {}

void RelativeTimes::give(const SegmentKey& key, const ShapeKey& shape, double seconds) {
  if (times_->predict(key, shape)) {
    times_->observe_time(key, shape, seconds);
  } else {
    times_->observe(key, shape, {{}, 0, 0, seconds});
  }
}

double RelativeTimes::usual_forward(std::uint16_t layer_class, const ShapeKey& shape) const {
  const auto known = times_->predict(forward_of(layer_class), shape);
  return known && is_time(known->seconds) ? known->seconds : 0;
}

void RelativeTimes::observe_forward(std::uint16_t layer_class, const ShapeKey& shape,
                                    double seconds) {
  if (!is_time(seconds)) return;
  give(forward_of(layer_class), shape, seconds);
  // Of the fit with it: few samples tell lengths that are not theirs badly.
  const double usual = usual_forward(layer_class, shape);
  if (usual > 0) pace_.note(seconds / usual);
}

void RelativeTimes::observe(const SegmentKey& key, const ShapeKey& shape, double seconds,
                            double forward_seconds) {
  if (!is_time(seconds)) return;
  if (!is_time(forward_seconds)) {
    forward_seconds = pace() * usual_forward(key.layer_class, shape);
    if (!is_time(forward_seconds)) return;
  }
  give(key, shape, kUnit * seconds / forward_seconds * volume(shape));
}

std::optional<RelativeTimes::Estimate> RelativeTimes::predict(const SegmentKey& key,
                                                              const ShapeKey& shape) const {
  const bool of_layer = key.kind == SegmentKind::kForward || key.kind == SegmentKind::kBackward ||
                        key.kind == SegmentKind::kRecompute;
  if (!of_layer) return std::nullopt;
  const auto forward = times_->predict(forward_of(key.layer_class), shape);
  if (!forward || !is_time(forward->seconds)) return std::nullopt;
  if (key.kind == SegmentKind::kForward) {
    return Estimate{forward->seconds * pace(), forward->seconds_sigma * pace()};
  }
  const auto relative = times_->predict(key, shape);
  if (!relative || !is_time(relative->seconds)) return std::nullopt;
  const double unit = pace() * forward->seconds / volume(shape) / kUnit;
  return Estimate{relative->seconds * unit, relative->seconds_sigma * unit};
}

void RelativeTimes::forget(const SegmentKey& key) {
  if (key.kind != SegmentKind::kForward) times_->forget(key);
}

void RelativeTimes::forget_class(std::uint16_t layer_class) {
  for (const SegmentKey& key : times_->segments()) {
    if (key.layer_class == layer_class) times_->forget(key);
  }
}

Result<void> RelativeTimes::restore(const std::string& text) {
  auto fresh = factory_();
  auto done = fresh->restore(text);
  if (!done) return done.error();
  times_ = std::move(fresh);
  return {};
}

}  // namespace pudica
