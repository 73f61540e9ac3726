// ClassModel: forward and backward estimates of one layer class, with its fallbacks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "predictor/step/segment_store.h"

namespace pudica {

// Where estimates are asked for.
struct ClassQuery {
  ShapeKey shape;
  std::uint16_t layer_class = 0;
  bool gradients_present = false;
  // Kept calls are hardly ever measured: what one of them says counts for less than what is read
  // off recomputed ones.
  bool derives_kept = false;
  // Backwards as they are behind a layer that lets go of its output; else behind one that holds it.
  bool early_free = false;
  bool casts_present = false;  // forwards as they are where weights were cast before
};

// Forward and backward of one mode, seen on layers of one variant: their nets belong together.
struct ModePair {
  SegmentEstimate forward;
  SegmentEstimate backward;
  std::uint8_t variant = 0;
  bool identified = true;
  bool fit = true;

  // What both leave live together: parameter gradients, and what the head freed in between.
  [[nodiscard]] std::int64_t remaining_bytes() const {
    return forward.net_bytes + backward.net_bytes;
  }
};

// A view of the store for one query; cheap to make, lives as long as the store.
class ClassModel {
 public:
  ClassModel(const SegmentStore& store, const ClassQuery& query) : store_(store), query_(query) {}

  // The mode as seen on this very variant.
  [[nodiscard]] std::optional<ModePair> exact(Mode mode, std::uint8_t variant) const;
  // The same, or the best stand-in: another variant of the class, seen at more shapes.
  [[nodiscard]] std::optional<ModePair> best(Mode mode, std::uint8_t variant) const;
  // Parameter gradients that a layer of this variant leaves. nullopt: nothing is known.
  [[nodiscard]] std::optional<std::int64_t> residue(std::uint8_t variant) const;
  // Of what a layer of the pair's variant leaves, which has that residue, the bytes freed in the
  // head. Where none were measured: what it leaves beyond that; none of a kept one.
  [[nodiscard]] std::int64_t released(Mode mode, const ModePair& pair, std::int64_t residue) const;
  // Seconds and bytes of the recompute behind a mode.
  [[nodiscard]] std::optional<StoredEstimate> recompute(Mode mode) const;

 private:
  [[nodiscard]] std::optional<ModePair> pair(Mode mode, std::uint8_t variant,
                                             bool gradients_present) const;
  // As seen in such calls (kCastsPresent), else as the other sort shows it: what the casts make of
  // a forward is the same in every mode, and known of `keep` or `full`.
  [[nodiscard]] std::optional<StoredEstimate> forward(Mode mode, std::uint8_t variant) const;
  [[nodiscard]] SegmentKey forward_key(Mode mode, std::uint8_t variant) const {
    const SegmentKey key{SegmentKind::kForward, query_.layer_class, mode, variant};
    return key.with_casts(query_.casts_present);
  }
  [[nodiscard]] std::optional<StoredEstimate> forward_of(Mode mode, std::uint8_t variant,
                                                         bool casts_present) const;
  [[nodiscard]] std::optional<StoredEstimate> derived_forward(Mode mode,
                                                              std::uint8_t variant) const;
  // A backward that its own log leaves open, read off its forward.
  void settle_net(ModePair& pair, const SegmentKey& of_forward,
                  const SegmentKey& backward_key) const;
  [[nodiscard]] std::optional<ModePair> with_gradients(Mode mode, std::uint8_t variant) const;
  // Of the class's other variants the one to believe most.
  [[nodiscard]] std::optional<ModePair> stand_in(Mode mode, std::uint8_t variant) const;
  // What the layer itself left where it last was new is further from what the other would have
  // left there than what is open of its own.
  [[nodiscard]] bool contradicts(const ModePair& own, Mode mode, std::uint8_t other) const;
  // Only ever seen with gradients present, or without: better than nothing, and marked.
  [[nodiscard]] std::optional<ModePair> with_other_gradients(Mode mode, std::uint8_t variant) const;
  // What a kept layer leaves to its backward, read off recomputed calls: a pair of their variant.
  [[nodiscard]] std::optional<ModePair> derived_keep(const StoredEstimate& forward,
                                                     const ModePair& full) const;
  // The same from a forward and recomputed calls of two variants of one group.
  [[nodiscard]] std::optional<ModePair> derived_across(std::uint8_t variant) const;

  // What was measured of it; 0: nothing was.
  [[nodiscard]] std::int64_t measured_release(Mode mode, std::uint8_t variant) const;
  // What a layer leaves in the end.
  [[nodiscard]] std::int64_t left_bytes(Mode mode, const ModePair& pair) const {
    return pair.remaining_bytes() - measured_release(mode, pair.variant);
  }

  const SegmentStore& store_;
  const ClassQuery& query_;
};

}  // namespace pudica
