// What the environment says of the emulated device, read once when the library is loaded. What it
// cannot mean ends the process with a sentence: better than a test on another device than it names.
#pragma once

#include <cstddef>

#include "emulated_device/cards.h"

namespace pudica::emulated {

constexpr int kMostDevices = 16;

struct Settings {
  Card card{};             // PUDICA_EMULATED_CARD, with the two below put in
                           // PUDICA_EMULATED_BYTES: memory of a device
                           // PUDICA_EMULATED_CONTEXT_BYTES
  int devices = 1;         // PUDICA_EMULATED_DEVICES: all of one card
  double launch_us = 3;    // PUDICA_EMULATED_LAUNCH_US: the least that work takes on the device
  double call_us = 2;      // PUDICA_EMULATED_CALL_US: what a call takes on the host
  bool log_stubs = false;  // PUDICA_EMULATED_LOG=1: names what is called and does nothing
};

const Settings& settings();

}  // namespace pudica::emulated
