#include "torch/random_state.h"

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

namespace pudica::hooks {
namespace {

at::Generator device_generator(c10::Device device) {
  return at::globalContext().defaultGenerator(device);
}

bool same_state(const at::mt19937_data_pod& left, const at::mt19937_data_pod& right) {
  return left.left_ == right.left_ && left.next_ == right.next_ && left.seed_ == right.seed_ &&
         left.seeded_ == right.seeded_ && left.state_ == right.state_;
}

}  // namespace

RandomMark RandomMark::now(c10::Device device) {
  static auto* const generator =
      at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
  const at::mt19937_data_pod engine = generator->engine().data();
  RandomMark mark{engine.left_, engine.next_, engine.state_[0], engine.state_[1], 0};
  if (device.is_cuda()) mark.device_offset = device_generator(device).get_offset();
  return mark;
}

RandomState RandomState::capture(c10::Device device) {
  RandomState captured;
  captured.device_ = device;
  {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    const auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
    auto* state = const_cast<at::CPUGeneratorImpl*>(cpu);
    captured.cpu_engine_ = state->engine();
    captured.next_float_normal_ = state->next_float_normal_sample();
    captured.next_double_normal_ = state->next_double_normal_sample();
  }
  if (device.is_cuda()) {
    at::Generator generator = device_generator(device);
    const std::lock_guard lock(generator.mutex());
    captured.device_state_ = generator.get_state();
  }
  return captured;
}

void RandomState::apply() const {
  if (cpu_engine_) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
    cpu->set_engine(*cpu_engine_);
    cpu->set_next_float_normal_sample(next_float_normal_);
    cpu->set_next_double_normal_sample(next_double_normal_);
  }
  if (device_state_.defined()) {
    at::Generator generator = device_generator(device_);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(device_state_);
  }
}

void RandomState::forget_unused() {
  if (!cpu_engine_) return;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
  const bool unused = cpu->next_float_normal_sample() == next_float_normal_ &&
                      cpu->next_double_normal_sample() == next_double_normal_ &&
                      same_state(cpu->engine().data(), cpu_engine_->data());
  if (unused) cpu_engine_.reset();
}

}  // namespace pudica::hooks
