#include "predictor/step/seen_mode.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace pudica {
namespace {

constexpr double kGrowthSlack = 1.1;  // for what does not grow quite so, as rounded sizes
constexpr double kGrowsAs = 1.02;     // still the same law

double ratio(std::int64_t after, std::int64_t before) {
  return before > 0 ? static_cast<double>(after) / static_cast<double>(before) : 0;
}

// By how much any tensor of a layer grows between two shapes: as batch x length does, if nothing in
// it is seen to grow faster, else as batch x length^2. nullopt: neither holds.
std::optional<double> growth_at_most(const ShapeKey& before, const ShapeKey& after, double seen) {
  if (before.size() != after.size() || before.size() == 0) return std::nullopt;
  double length = after.size() == 1 ? 1 : 0;
  for (std::size_t d = 1; d < after.size(); ++d) {
    length = std::max(length, ratio(after[d], before[d]));
  }
  double most = ratio(after[0], before[0]) * length;
  if (seen > kGrowsAs * std::max(1.0, most)) most *= length;
  if (seen > kGrowsAs * std::max(1.0, most)) return std::nullopt;
  return std::max(1.0, most);
}

// `seen`: by how much what recomputing a layer frees has grown.
double growth_at_least(const ShapeKey& before, const ShapeKey& after, double seen) {
  double length = after.size() == 1 ? 1 : std::numeric_limits<double>::infinity();
  for (std::size_t d = 1; d < after.size(); ++d) {
    length = std::min(length, ratio(after[d], before[d]));
  }
  double least = ratio(after[0], before[0]) * length;
  if (kGrowsAs * seen < least && length < 1) least *= length;
  if (kGrowsAs * seen >= least) return least;
  return seen * kGrowsAs >= 1 ? 1 : 0;
}

// What of a kept layer no mode holds less of is left out: casts of weights do not grow.
std::optional<std::int64_t> freed_by_full(const ClassModel& classes, std::uint8_t variant) {
  const auto keep = classes.best(Mode::keep(), variant);
  const auto full = classes.best(Mode::full(), variant);
  if (!keep || !full || !keep->fit || !full->fit) return std::nullopt;
  return keep->forward.net_bytes - full->forward.net_bytes;
}

// Of what `keep` and `full` leave and need, that which grew most.
std::optional<double> growth_of_plain(const ClassModel& then, const ClassModel& now,
                                      std::uint8_t variant) {
  double growth = 1;
  for (const Mode plain : {Mode::keep(), Mode::full()}) {
    const auto before = then.best(plain, variant);
    const auto after = now.best(plain, variant);
    if (!before || !after || !before->fit || !after->fit) return std::nullopt;
    growth = std::max({growth, ratio(after->forward.net_bytes, before->forward.net_bytes),
                       ratio(after->forward.peak_bytes, before->forward.peak_bytes),
                       ratio(after->backward.peak_bytes, before->backward.peak_bytes)});
  }
  return growth;
}

}  // namespace

double growth_at_least(const SegmentStore& store, const ClassQuery& now, std::uint8_t variant,
                       const ShapeKey& before) {
  if (now.shape.size() == 0 || before.size() != now.shape.size()) return 0;
  ClassQuery then = now;
  then.shape = before;
  const auto freed_then = freed_by_full(ClassModel(store, then), variant);
  const auto freed_now = freed_by_full(ClassModel(store, now), variant);
  if (!freed_then || !freed_now) return 0;
  return growth_at_least(before, now.shape, ratio(*freed_now, *freed_then)) / kGrowthSlack;
}

std::optional<LayerModeCosts> grown_since_seen(const SegmentStore& store, const ClassQuery& now,
                                               std::uint8_t variant, Mode mode) {
  const SegmentKey key{SegmentKind::kForward, now.layer_class, mode, variant};
  const auto shape = store.only_shape(store.as_known(key, now.casts_present));
  if (!shape) return std::nullopt;
  ClassQuery query = now;
  query.shape = *shape;
  const ClassModel then(store, query);
  const auto seen = then.best(mode, variant);
  if (!seen || !seen->fit) return std::nullopt;
  const auto plain = growth_of_plain(then, ClassModel(store, now), variant);
  const auto growth = plain ? growth_at_most(*shape, now.shape, *plain) : std::nullopt;
  if (!growth) return std::nullopt;
  const auto grown = [&growth](std::int64_t bytes) {
    return static_cast<std::int64_t>(*growth * kGrowthSlack * static_cast<double>(bytes));
  };
  LayerModeCosts out;
  out.mode = mode;
  out.forward_net_bytes = grown(seen->forward.net_bytes);
  out.forward_peak_bytes = grown(seen->forward.peak_bytes);
  out.backward_peak_bytes = grown(seen->backward.peak_bytes);
  return out;
}

}  // namespace pudica
