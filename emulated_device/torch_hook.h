// What torch itself must do otherwise on a device that does not compute is in a library of its own,
// which links with torch and is loaded when torch asks for the device.
#pragma once

namespace pudica::emulated {

// Loads it where torch is and has its operators; until then it is tried again.
void change_torch_once();

}  // namespace pudica::emulated
