// What the environment says of the emulated device, read once when the library is loaded. What it
// cannot mean ends the process with a sentence: better than a test on another device than it names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

#include "emulated_device/cards.h"

namespace pudica::emulated {

constexpr int kMostDevices = 16;

// When work is done: what copies move has then been moved, and events before it are ready.
enum class Order {
  kIssue,  // when it is issued
  kClock,  // when the virtual clock gets there: the host is ahead of the device, as it is in fact
  kLate,   // when somebody waits for it, or has asked twice
};

// What becomes of addresses that were freed.
enum class Freed {
  kReuse,
  kFault,  // nobody gets them again, and who touches them ends
};

struct Settings {
  Card card{};                  // PUDICA_EMULATED_CARD, with the two below put in
                                // PUDICA_EMULATED_BYTES: memory of a device
                                // PUDICA_EMULATED_CONTEXT_BYTES
  int devices = 1;              // PUDICA_EMULATED_DEVICES: all of one card
  Order order = Order::kIssue;  // PUDICA_EMULATED_ORDER: issue, clock or late
  double launch_us = 3;    // PUDICA_EMULATED_LAUNCH_US: the least that work takes on the device
  double call_us = 2;      // PUDICA_EMULATED_CALL_US: what a call takes on the host
  double query_us = 1;     // asking whether something is done
  double lag_us = 0;       // PUDICA_EMULATED_LAG_US: work takes up to so much longer,
  std::uint64_t seed = 1;  // PUDICA_EMULATED_SEED: as drawn from this
  Freed freed = Freed::kReuse;  // PUDICA_EMULATED_FREED: reuse or fault
  // PUDICA_EMULATED_FAIL_MALLOC: which requests for memory of a device are refused, from 1 on.
  std::set<std::uint64_t> refused_mallocs;
  bool maps_pages = true;  // PUDICA_EMULATED_PAGES=0: as a driver without virtual memory
  bool log_stubs = false;  // PUDICA_EMULATED_LOG=1: names what is called and does nothing
};

const Settings& settings();

}  // namespace pudica::emulated
