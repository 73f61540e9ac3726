// DeviceClock: the time line of a device that works on its own while the host goes on.
#pragma once

#include <memory>
#include <optional>

#include <c10/core/Device.h>

namespace pudica::hooks {

// A point on that line. Immutable; any thread.
class DeviceInstant {
 public:
  virtual ~DeviceInstant() = default;
  // Seconds of the device since `begin`, an instant of the same clock. Nothing: the device has not
  // come to both yet. Never waits for it.
  [[nodiscard]] virtual std::optional<double> seconds_since(const DeviceInstant& begin) const = 0;
};

// Thread-safe.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  // Behind what the calling thread has given the device to do, and before what comes next. Null:
  // the device cannot tell. A few microseconds.
  virtual std::shared_ptr<const DeviceInstant> now() noexcept = 0;
};

// The clock of a device; null where the host's own will do (CPU), and for a CUDA device without
// pudica_torch_cuda.
std::shared_ptr<DeviceClock> make_device_clock(c10::Device device);
using DeviceClockFactory = std::shared_ptr<DeviceClock> (*)(c10::Device device);
// Null: none from now on.
void register_device_clock(c10::DeviceType type, DeviceClockFactory factory);

// Waits until the device has done all that it was given; at once on the CPU. Not in a step, but for
// a class's first call.
void synchronize(c10::Device device);

}  // namespace pudica::hooks
