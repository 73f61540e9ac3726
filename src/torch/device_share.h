// DeviceShare: what the sessions of one device have in common: its meter, its frames, and whose
// step is under way.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include <c10/core/Device.h>

#include "torch/meter.h"
#include "torch/registry.h"

namespace pudica::hooks {

// Of a step that another model's step on the same device may cut short: nothing it measured counts
// from then on.
using StepClaim = std::shared_ptr<std::atomic<bool>>;

// Lives while a session of the device does. Thread-safe.
class DeviceShare {
 public:
  static std::shared_ptr<DeviceShare> of(c10::Device device, Meter& meter);
  ~DeviceShare();
  DeviceShare(const DeviceShare&) = delete;
  DeviceShare& operator=(const DeviceShare&) = delete;

  [[nodiscard]] Meter& meter() { return meter_; }
  [[nodiscard]] const std::shared_ptr<Registry>& registry() const { return registry_; }

  // The device's cap becomes this step's budget. The step that was under way, of whichever session,
  // is cut short: its claim turns true.
  void claim(const StepClaim& step, std::int64_t cap_bytes, bool refuse);
  // The cap of a session outside its steps: does nothing during a step of another one.
  void set_cap(const StepClaim& step, std::int64_t cap_bytes, bool refuse);
  // What the step's allocations are written to; null: nothing. Does nothing once it was cut short.
  void set_recorder(const StepClaim& step, Recorder* recorder);
  // The step has ended. The cap stays until the next claim.
  void release(const StepClaim& step);

 private:
  DeviceShare(std::string name, Meter& meter);

  std::string name_;
  Meter& meter_;
  std::shared_ptr<Registry> registry_;
  std::mutex mutex_;
  StepClaim current_;  // guarded by mutex_
};

}  // namespace pudica::hooks
