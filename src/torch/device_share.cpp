#include "torch/device_share.h"

#include <map>
#include <utility>

namespace pudica::hooks {
namespace {

struct Shares {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<DeviceShare>> by_device;
};

Shares& shares() {
  static auto* const all = new Shares;  // leaked: handles may die after static objects
  return *all;
}

}  // namespace

std::shared_ptr<DeviceShare> DeviceShare::of(c10::Device device, Meter& meter) {
  const std::lock_guard lock(shares().mutex);
  auto& known = shares().by_device[device.str()];
  auto share = known.lock();
  if (!share) {
    share.reset(new DeviceShare(device.str(), meter));
    known = share;
  }
  return share;
}

DeviceShare::DeviceShare(std::string name, Meter& meter)
    : name_(std::move(name)), meter_(meter), registry_(std::make_shared<Registry>(meter)) {
  meter_.set_pressure_callback([registry = registry_](std::int64_t missing_bytes) {
    return registry->revoke(missing_bytes);
  });
}

DeviceShare::~DeviceShare() {
  const std::lock_guard lock(shares().mutex);
  const auto known = shares().by_device.find(name_);
  // Another one may have taken over between the last session's end and here.
  if (known != shares().by_device.end() && !known->second.expired()) return;
  meter_.set_recorder(nullptr);
  meter_.set_pressure_callback(nullptr);
  meter_.set_cap(0, false);
  shares().by_device.erase(name_);
}

void DeviceShare::claim(const StepClaim& step, std::int64_t cap_bytes, bool refuse) {
  const std::lock_guard lock(mutex_);
  if (current_ && current_ != step) {
    current_->store(true);
    meter_.set_recorder(nullptr);
  }
  current_ = step;
  meter_.set_cap(cap_bytes, refuse);
}

void DeviceShare::set_cap(const StepClaim& step, std::int64_t cap_bytes, bool refuse) {
  const std::lock_guard lock(mutex_);
  if (!current_ || current_ == step) meter_.set_cap(cap_bytes, refuse);
}

void DeviceShare::set_recorder(const StepClaim& step, Recorder* recorder) {
  const std::lock_guard lock(mutex_);
  if (current_ == step) meter_.set_recorder(recorder);
}

void DeviceShare::release(const StepClaim& step) {
  const std::lock_guard lock(mutex_);
  if (current_ != step) return;
  current_.reset();
  meter_.set_recorder(nullptr);
}

}  // namespace pudica::hooks
