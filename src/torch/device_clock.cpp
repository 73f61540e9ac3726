#include "torch/device_clock.h"

#include <array>
#include <atomic>
#include <cstddef>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace pudica::hooks {
namespace {

constexpr auto kDeviceTypes = static_cast<std::size_t>(c10::COMPILE_TIME_MAX_DEVICE_TYPES);

std::atomic<DeviceClockFactory>& factory_of(c10::DeviceType type) {
  static std::array<std::atomic<DeviceClockFactory>, kDeviceTypes> factories{};
  return factories[static_cast<std::size_t>(type)];
}

}  // namespace

std::shared_ptr<DeviceClock> make_device_clock(c10::Device device) {
  const DeviceClockFactory factory = factory_of(device.type()).load();
  return factory != nullptr ? factory(device) : nullptr;
}

void register_device_clock(c10::DeviceType type, DeviceClockFactory factory) {
  factory_of(type).store(factory);
}

void synchronize(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace pudica::hooks
