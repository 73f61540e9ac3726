// ExpandableSegments: torch's setting of that name, turned on where a budget needs it. Segments of
// fixed sizes leave holes that no block fits in, and what is reserved goes over a budget that the
// bytes in use are far below; expandable ones grow and shrink by pages. What is in use anywhere in
// a page holds all of it: so pages, and segments where they are of fixed sizes, are the smallest
// that torch allows.
#pragma once

#include <cstddef>
#include <string>

#include <c10/core/Device.h>

namespace pudica::hooks {

// Thread-safe; nothing of it throws. One process has one setting; segments that exist stay what
// they are.
class ExpandableSegments {
 public:
  // Torch wants more than 10 MiB, the driver whole units of 2; torch's own choice is 20.
  static constexpr std::size_t kPageBytes = std::size_t{12} << 20U;

  // What the driver of this device can do.
  static bool are_possible(c10::DeviceIndex device);

  // Asks for them and for small pages until leave(), as often as it is called. What is not possible
  // or named by the user's own settings stays: his word holds. Other settings stay, too.
  static void enter(c10::DeviceIndex device);
  static void leave();

  // For good, whatever was set before. Why not, where they are not possible or torch refuses.
  static std::string insist(c10::DeviceIndex device);
};

}  // namespace pudica::hooks
