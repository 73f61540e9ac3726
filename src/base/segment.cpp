#include <string>

#include "pudica/layer_profile.h"

namespace pudica {

std::string to_string(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::kGap:
      return "gap";
    case SegmentKind::kForward:
      return "forward";
    case SegmentKind::kHead:
      return "head";
    case SegmentKind::kBackward:
      return "backward";
    case SegmentKind::kEpilogue:
      return "epilogue";
    case SegmentKind::kOptimizer:
      return "optimizer";
    case SegmentKind::kRecompute:
      return "recompute";
    case SegmentKind::kHeldOutput:
      return "held-output";
    case SegmentKind::kReleased:
      return "released";
  }
  return "unknown";
}

std::string to_string(const SegmentKey& key) {
  std::string text =
      to_string(key.kind) + "/" + std::to_string(key.place()) + "/" + to_string(key.mode);
  if ((key.variant & SegmentKey::kLastOfClass) != 0) text += "/last";
  if ((key.variant & SegmentKey::kFirstOfClass) != 0) text += "/first";
  if ((key.variant & SegmentKey::kNoInputGradient) != 0) text += "/no-input-gradient";
  if ((key.variant & SegmentKey::kGradientsPresent) != 0) text += "/accumulating";
  if ((key.variant & SegmentKey::kCastsPresent) != 0) text += "/casts-present";
  if ((key.variant & SegmentKey::kEarlyFree) != 0) text += "/early-free";
  if (key.step_kind() != 0) text += "/step-kind-" + std::to_string(key.step_kind());
  return text;
}

}  // namespace pudica
