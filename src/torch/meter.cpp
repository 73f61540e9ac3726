#include "torch/meter.h"

#include <utility>

#include "torch/cuda_part.h"

namespace pudica::hooks {
namespace {

std::atomic<MeterFactory> cuda_factory{nullptr};

}  // namespace

void PressureSlot::set(PressureCallback callback) {
  std::shared_ptr<const PressureCallback> next;
  if (callback) next = std::make_shared<const PressureCallback>(std::move(callback));
  const std::lock_guard lock(mutex_);
  std::swap(callback_, next);  // the one before dies unlocked
}

std::shared_ptr<const PressureCallback> PressureSlot::get() const {
  const std::lock_guard lock(mutex_);
  return callback_;
}

Meter* meter_for(c10::Device device) {
  if (device.is_cpu()) return &cpu_meter();
  if (!device.is_cuda() || !load_cuda_part().empty()) return nullptr;
  const MeterFactory factory = cuda_factory.load();
  return factory != nullptr ? factory(device) : nullptr;
}

void register_cuda_meter(MeterFactory factory) { cuda_factory.store(factory); }

bool& this_thread_is_revoking() {
  static thread_local bool revoking = false;
  return revoking;
}

bool& this_thread_is_searching() {
  static thread_local bool searching = false;
  return searching;
}

}  // namespace pudica::hooks
