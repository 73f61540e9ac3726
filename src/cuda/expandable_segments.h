// ExpandableSegments: torch's setting of that name, turned on where a budget needs it. Segments of
// fixed sizes leave holes that no block fits in, and what is reserved goes over a budget that the
// bytes in use are far below; expandable ones grow and shrink by pages.
#pragma once

#include <string>

#include <c10/core/Device.h>

namespace pudica::hooks {

// Thread-safe; nothing of it throws. One process has one setting; segments that exist stay what
// they are.
class ExpandableSegments {
 public:
  // What the driver of this device can do.
  static bool are_possible(c10::DeviceIndex device);

  // Asks for them until leave(), as often as it is called. Nothing happens where they are not
  // possible, or where the user's own settings name them: his word holds. Other settings stay.
  static void enter(c10::DeviceIndex device);
  static void leave();

  // For good, whatever was set before. Why not, where they are not possible or torch refuses.
  static std::string insist(c10::DeviceIndex device);
};

}  // namespace pudica::hooks
