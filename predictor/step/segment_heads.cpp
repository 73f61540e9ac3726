// Heads: each is known with the layers before it that were not kept, which it frees something of.
#include <algorithm>
#include <utility>

#include "predictor/step/segment_store.h"

namespace pudica {
namespace {

std::int64_t total(const DroppedLayers& layers, const ShapeKey& shape, bool gradients_present,
                   const ReleasedBytes& released) {
  std::int64_t bytes = 0;
  for (const auto& [layer, count] : layers) {
    bytes += count * released(shape, gradients_present, layer);
  }
  return bytes;
}

}  // namespace

SegmentKey SegmentStore::head_key(std::uint8_t step_kind, bool gradients_present,
                                  std::size_t number) {
  const std::uint8_t variant = gradients_present ? SegmentKey::kGradientsPresent : 0;
  return SegmentKey{SegmentKind::kHead, static_cast<std::uint16_t>(number), Mode::keep(), variant}
      .in_kind(step_kind);
}

std::optional<SegmentKey> SegmentStore::place_of_head(const FreshHead& fresh,
                                                      const ReleasedBytes& released) {
  const std::uint8_t step_kind = fresh.key.step_kind();
  const bool present = fresh.key.accumulates();
  std::optional<std::size_t> number = head_alike(fresh, released);
  forget_outdated_heads(fresh, number, released);
  if (!number) number = room_for_head(fresh);
  if (!number) return std::nullopt;
  const SegmentKey key = head_key(step_kind, present, *number);
  MeasuredHead& head = heads_[head_index(step_kind, present)].at(*number);
  if (head.dropped != fresh.dropped) {
    // Its samples of other shapes stay behind the layers that they were behind, where it matters.
    const auto only = only_shape_.find(key);
    const bool is_free = predictor_->distinct_shapes(key) == 0 ||
                         (only != only_shape_.end() && only->second == fresh.shape) ||
                         total(fresh.dropped, fresh.shape, present, released) == 0;
    if (is_free) {
      head.dropped = fresh.dropped;
      ++heads_changed_;
    }
  }
  const Heads& heads = heads_[head_index(step_kind, present)];
  const auto latest = std::ranges::max_element(heads, {}, &MeasuredHead::latest);
  if (&*latest != &head) ++heads_changed_;  // which of them is believed may be another now
  head.latest = ++heads_measured_;
  return key;
}

// That behind the very same layers, else one behind others that release as much.
std::optional<std::size_t> SegmentStore::head_alike(const FreshHead& fresh,
                                                    const ReleasedBytes& released) const {
  const bool present = fresh.key.accumulates();
  const Heads& heads = heads_[head_index(fresh.key.step_kind(), present)];
  const auto is_known = [&](std::size_t number) {
    return predictor_->distinct_shapes(head_key(fresh.key.step_kind(), present, number)) > 0;
  };
  for (std::size_t number = 0; number < heads.size(); ++number) {
    if (is_known(number) && heads[number].dropped == fresh.dropped) return number;
  }
  if (heads.empty()) return std::nullopt;
  const std::int64_t own = total(fresh.dropped, fresh.shape, present, released);
  for (std::size_t number = 0; number < heads.size(); ++number) {
    if (is_known(number) && total(heads[number].dropped, fresh.shape, present, released) == own) {
      return number;
    }
  }
  return std::nullopt;
}

// Of heads known at one shape only: at this one the fresh one says as much, and is as things are
// now; what the process's first step allocated once is in one that leaves more than a batch as
// large.
void SegmentStore::forget_outdated_heads(const FreshHead& fresh, std::optional<std::size_t> alike,
                                         const ReleasedBytes& released) {
  const bool present = fresh.key.accumulates();
  const auto left = [&](const DroppedLayers& dropped, const ShapeKey& shape, std::int64_t net) {
    return net + total(dropped, shape, present, released);
  };
  Heads& heads = heads_[head_index(fresh.key.step_kind(), present)];
  for (std::size_t number = 0; number < heads.size(); ++number) {
    const SegmentKey key = head_key(fresh.key.step_kind(), present, number);
    const auto only = only_shape_.find(key);
    if (number == alike || only == only_shape_.end()) continue;
    bool goes = only->second == fresh.shape;
    if (!goes && of_first_step_.contains(key) && fresh.shape.covers(only->second)) {
      const auto first = predictor_->predict(key, only->second);
      goes = first && left(fresh.dropped, fresh.shape, fresh.net_bytes) + kNoticeableBytes <
                          left(heads[number].dropped, only->second, first->net_bytes);
    }
    if (goes) forget_head(key);
  }
}

// nullopt: one is known at two shapes, which tell of all others; logs of allocations behind other
// layers would contradict it.
std::optional<std::size_t> SegmentStore::room_for_head(const FreshHead& fresh) {
  const std::uint8_t step_kind = fresh.key.step_kind();
  const bool present = fresh.key.accumulates();
  Heads& heads = heads_[head_index(step_kind, present)];
  for (std::size_t number = 0; number < heads.size(); ++number) {
    if (predictor_->distinct_shapes(head_key(step_kind, present, number)) >= 2) {
      return std::nullopt;
    }
  }
  if (heads.size() < kMostHeads) {
    heads.emplace_back();
    return heads.size() - 1;
  }
  // One that was forgotten is the oldest.
  const auto oldest = std::ranges::min_element(heads, {}, &MeasuredHead::latest);
  const auto number = static_cast<std::size_t>(oldest - heads.begin());
  forget_head(head_key(step_kind, present, number));
  return number;
}

void SegmentStore::forget_head(const SegmentKey& key) {
  forget(key);
  forget(early_free(key));
  heads_[head_index(key.step_kind(), key.accumulates())].at(key.place()) = {};
  ++heads_changed_;
}

// Nobody will know what such layers released.
void SegmentStore::forget_heads_behind(const std::function<bool(const LayerRun&)>& goes,
                                       const ReleasedBytes& released) {
  for (std::size_t of = 0; of < heads_.size(); ++of) {
    const bool present = of % 2 != 0;
    for (std::size_t number = 0; number < heads_[of].size(); ++number) {
      const SegmentKey key = head_key(static_cast<std::uint8_t>(of / 2), present, number);
      const auto shape = predictor_->latest_shape(key);
      DroppedLayers& dropped = heads_[of][number].dropped;
      const bool matters = std::ranges::any_of(dropped, [&](const auto& entry) {
        return goes(entry.first) && shape && released(*shape, present, entry.first) > 0;
      });
      if (matters) {
        forget_head(key);
      } else if (std::erase_if(dropped, [&](const auto& entry) { return goes(entry.first); }) > 0) {
        ++heads_changed_;
      }
    }
  }
}

std::optional<SegmentStore::Head> SegmentStore::head(std::uint8_t step_kind, bool gradients_present,
                                                     const ShapeKey& shape) const {
  const Heads& heads = heads_[head_index(step_kind, gradients_present)];
  std::optional<Head> best;
  std::pair<int, std::uint64_t> most;
  for (std::size_t number = 0; number < heads.size(); ++number) {
    const SegmentKey key = head_key(step_kind, gradients_present, number);
    const auto known = predict(key, shape);
    if (!known) continue;
    const int told = !known->fit ? 0 : known->estimate.identified ? 2 : 1;
    const std::pair rank{told, heads[number].latest};
    if (best && rank <= most) continue;
    best = Head{key, heads[number].dropped, *known};
    most = rank;
  }
  return best;
}

}  // namespace pudica
