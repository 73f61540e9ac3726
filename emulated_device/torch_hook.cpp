#include "emulated_device/torch_hook.h"

#include <atomic>

#include "emulated_device/libraries.h"

namespace pudica::emulated {
namespace {

// false: not yet.
bool change_torch() {
  if (!is_loaded("libtorch_cpu.so") || !is_loaded("libtorch_cuda.so")) return false;
  void* const change =
      symbol_beside_us("libemulated_device_torch.so", "emulated_device_change_torch");
  // Without it torch stays as it is, and what it compares on the device is noise.
  return change == nullptr || reinterpret_cast<bool (*)()>(change)();
}

}  // namespace

void change_torch_once() {
  static std::atomic<bool> done{false};
  thread_local bool inside = false;
  if (done.load() || inside) return;
  inside = true;
  if (change_torch()) done.store(true);
  inside = false;
}

}  // namespace pudica::emulated
