#include "torch/ambient.h"

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

namespace pudica::hooks {
namespace {

constexpr c10::DeviceType kAutocastDevices[2] = {c10::DeviceType::CPU, c10::DeviceType::CUDA};

at::Generator device_generator(c10::Device device) {
  return at::globalContext().defaultGenerator(device);
}

bool same_state(const at::mt19937_data_pod& left, const at::mt19937_data_pod& right) {
  return left.left_ == right.left_ && left.next_ == right.next_ && left.seed_ == right.seed_ &&
         left.seeded_ == right.seeded_ && left.state_ == right.state_;
}

}  // namespace

Ambient Ambient::capture(c10::Device device) {
  Ambient ambient;
  ambient.device_ = device;
  {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    const auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
    auto* state = const_cast<at::CPUGeneratorImpl*>(cpu);
    ambient.cpu_engine_ = state->engine();
    ambient.next_float_normal_ = state->next_float_normal_sample();
    ambient.next_double_normal_ = state->next_double_normal_sample();
  }
  if (device.is_cuda()) {
    at::Generator generator = device_generator(device);
    const std::lock_guard lock(generator.mutex());
    ambient.device_random_state_ = generator.get_state();
  }
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
  if (cpu_engine_) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
    cpu->set_engine(*cpu_engine_);
    cpu->set_next_float_normal_sample(next_float_normal_);
    cpu->set_next_double_normal_sample(next_double_normal_);
  }
  if (device_random_state_.defined()) {
    at::Generator generator = device_generator(device_);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(device_random_state_);
  }
  for (int i = 0; i < 2; ++i) {
    at::autocast::set_autocast_enabled(kAutocastDevices[i], autocast_[i].enabled);
    at::autocast::set_autocast_dtype(kAutocastDevices[i], autocast_[i].dtype);
  }
  at::autocast::set_autocast_cache_enabled(autocast_cache_);
  at::impl::PythonTorchFunctionTLS::set_state(function_modes_);
  flags_.apply();
}

void Ambient::forget_unused_random_state() {
  if (!cpu_engine_) return;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
  const bool unused = cpu->next_float_normal_sample() == next_float_normal_ &&
                      cpu->next_double_normal_sample() == next_double_normal_ &&
                      same_state(cpu->engine().data(), cpu_engine_->data());
  if (unused) cpu_engine_.reset();
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
