#include "torch/ambient.h"

#include <ATen/autocast_mode.h>

namespace pudica::hooks {
namespace {

constexpr c10::DeviceType kAutocastDevices[2] = {c10::DeviceType::CPU, c10::DeviceType::CUDA};

}  // namespace

Ambient Ambient::capture(c10::Device device) {
  Ambient ambient;
  ambient.random_ = RandomState::capture(device);
  for (int i = 0; i < 2; ++i) {
    ambient.autocast_[i] = {at::autocast::is_autocast_enabled(kAutocastDevices[i]),
                            at::autocast::get_autocast_dtype(kAutocastDevices[i])};
  }
  ambient.autocast_cache_ = at::autocast::is_autocast_cache_enabled();
  ambient.function_modes_ = at::impl::PythonTorchFunctionTLS::get_state();
  ambient.flags_ = GlobalFlags::capture();
  return ambient;
}

void Ambient::apply() const {
  random_.apply();
  for (int i = 0; i < 2; ++i) {
    at::autocast::set_autocast_enabled(kAutocastDevices[i], autocast_[i].enabled);
    at::autocast::set_autocast_dtype(kAutocastDevices[i], autocast_[i].dtype);
  }
  at::autocast::set_autocast_cache_enabled(autocast_cache_);
  at::impl::PythonTorchFunctionTLS::set_state(function_modes_);
  flags_.apply();
}

AmbientGuard::AmbientGuard(const Ambient& ambient, c10::Device device)
    : before_(Ambient::capture(device)) {
  if (!ambient.has_random_state()) before_.forget_random_state();
  at::autocast::increment_nesting();
  ambient.apply();
}

AmbientGuard::~AmbientGuard() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  before_.apply();
}

}  // namespace pudica::hooks
