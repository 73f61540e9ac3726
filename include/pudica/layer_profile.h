// What is measured in a step: a sequence of segments, each a stretch of the step between two marks.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "pudica/mode.h"
#include "pudica/shape_key.h"

namespace pudica {

// The kinds of stretches that one step is cut into, in the order in which they occur.
enum class SegmentKind : std::uint8_t {
  kGap,       // forward before layer `index` (gap 0: embedding); see SegmentKey::until_return
  kForward,   // one layer's forward
  kHead,      // after the last layer: head, loss, its backward up to the last layer's border
  kBackward,  // one layer's backward, its recompute included
  // After a layer's backward, up to the border of the one before it: the backward of the gap before
  // the layer. Of gap 0, the embedding's, up to the end.
  kEpilogue,
  kOptimizer,  // from the end of backward to the end of the step
  // The recompute inside a backward, whose bytes are part of kBackward as well. Its net_bytes are
  // what it leaves live: the layer's inventory, which a kept forward would have saved.
  kRecompute,
  // No stretch of the step: bytes of its output that a layer itself saved, which go in its own
  // backward. Without it they go in the backward of whoever reads them, once they were read.
  kHeldOutput,
  // Nor this: bytes that a layer made beside what it hands on and that the head freed (autocast's
  // casts of weights that no backward waits for).
  kReleased,
};

std::string to_string(SegmentKind kind);

// Which segment: layers of one class and mode pool their samples. Ordered, for maps.
struct SegmentKey {
  SegmentKind kind = SegmentKind::kForward;
  // Of a layer segment; for kGap and kEpilogue the gap's index, else 0: in steps of the first kind.
  std::uint16_t layer_class = 0;
  Mode mode;  // keep for segments without a mode
  // Bits that change what a segment allocates: see kLastOfClass and the rest.
  std::uint8_t variant = 0;

  static constexpr std::uint8_t kLastOfClass = 1;       // first of its class in backward
  static constexpr std::uint8_t kNoInputGradient = 2;   // its input needs no gradient
  static constexpr std::uint8_t kGradientsPresent = 4;  // accumulation: .grad exists already
  // Last of its class in backward, with other layers before it in the step: the gradient of what
  // all of the class read (a decoder's memory) is summed then.
  static constexpr std::uint8_t kFirstOfClass = 8;
  // Of kBackward and kHead: as it is behind a layer that does not hold its output. Without the bit
  // a key's bytes are those behind one that does: they need no less. Of kForward and kGap: as it
  // is while outputs that nobody reads are still there; without the bit it needs less.
  static constexpr std::uint8_t kEarlyFree = 16;
  // Of what lies in the forward or the head: in a forward that found weights cast, by an earlier
  // one under the same autocast. Known of one sort only, a segment is taken to be as that one.
  static constexpr std::uint8_t kCastsPresent = 32;

  // The same without where in its class a layer stands.
  static constexpr std::uint8_t group_of(std::uint8_t variant) {
    return static_cast<std::uint8_t>(variant & ~(kLastOfClass | kFirstOfClass));
  }

  // What stands between layers is learned for each kind of step (which runs layers of classes of
  // its own) apart. A step has at most kMostLayers.
  static constexpr std::uint16_t kPlacesOfKind = 4096;
  static constexpr std::size_t kMostLayers = kPlacesOfKind - 3;
  static constexpr std::size_t kMostKinds = 16;
  [[nodiscard]] bool is_of_kind() const {
    return kind == SegmentKind::kGap || kind == SegmentKind::kEpilogue ||
           kind == SegmentKind::kHead;
  }
  // The same segment in a step of this kind; keys of layers and of the optimizer stay what they
  // are.
  [[nodiscard]] SegmentKey in_kind(std::uint8_t step_kind) const {
    SegmentKey key = *this;
    if (is_of_kind()) {
      key.layer_class = static_cast<std::uint16_t>(place() + step_kind * kPlacesOfKind);
    }
    return key;
  }
  [[nodiscard]] std::uint8_t step_kind() const {
    return is_of_kind() ? static_cast<std::uint8_t>(layer_class / kPlacesOfKind) : std::uint8_t{0};
  }
  // layer_class, the kind of step left out.
  [[nodiscard]] std::uint16_t place() const {
    return is_of_kind() ? static_cast<std::uint16_t>(layer_class % kPlacesOfKind) : layer_class;
  }

  // The same in a forward that found such casts, or did not; other kinds stay what they are.
  [[nodiscard]] SegmentKey with_casts(bool present) const {
    const bool may = kind == SegmentKind::kForward || kind == SegmentKind::kGap ||
                     kind == SegmentKind::kHead || kind == SegmentKind::kReleased;
    SegmentKey key = *this;
    key.variant = static_cast<std::uint8_t>(variant & ~kCastsPresent);
    if (may && present) key.variant |= kCastsPresent;
    return key;
  }
  // In a step whose gradients were there already.
  [[nodiscard]] bool accumulates() const { return (variant & kGradientsPresent) != 0; }

  // The gap behind the last layer: the head until the forward returns, which the head's own segment
  // holds as well. Measured where outputs of the step before were freed there.
  static SegmentKey until_return(std::size_t layers) {
    return {SegmentKind::kGap, static_cast<std::uint16_t>(layers), Mode::keep(), 0};
  }
  // Behind the last layer, too: the head until the last of what layers left for it (kReleased) is
  // freed; those frees are left out. Its place is the same whatever layers come and go.
  static SegmentKey until_release() {
    return {SegmentKind::kGap, kPlacesOfKind - 2, Mode::keep(), 0};
  }
  // Behind the last layer of a forward that waits for others with which it shares a backward: until
  // the next one begins. Its place likewise.
  static SegmentKey until_next() { return {SegmentKind::kGap, kPlacesOfKind - 1, Mode::keep(), 0}; }

  auto operator<=>(const SegmentKey&) const = default;
};

std::string to_string(const SegmentKey& key);

// One measurement of one segment. Bytes are relative to the live bytes at the segment's start.
// `deltas` are the signed sizes of its allocations (+) and frees (-) in order, in bytes; it may be
// empty where they were not recorded, then net_bytes and peak_bytes stand alone.
struct SegmentSample {
  std::vector<std::int64_t> deltas;
  std::int64_t net_bytes = 0;
  std::int64_t peak_bytes = 0;  // >= 0 and >= net_bytes
  double seconds = 0;           // 0: not measured
};

}  // namespace pudica
