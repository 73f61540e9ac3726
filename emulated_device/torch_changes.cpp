// What torch does otherwise on a device that does not compute (a library of its own: it links with
// torch).
//
// Tensors compared there are equal when their shapes are: their values would be whatever lies in
// the memory of a result that nobody wrote. Such a comparison says nothing. cuDNN is switched off,
// and with it its attention, which torch prefers at capability 9.0: it is not emulated.
#include <mutex>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace {

bool same_shape(const at::Tensor& left, const at::Tensor& right) {
  return left.sizes() == right.sizes();
}

// That a kernel takes another's place is meant.
class Unheard final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

}  // namespace

// false: torch's own operators are not there yet, and would take the place of these.
extern "C" bool emulated_device_change_torch() {
  static std::mutex mutex;
  static bool changed = false;
  const std::lock_guard lock(mutex);
  if (changed) return true;
  const auto equal = c10::Dispatcher::singleton().findSchema({"aten::equal", ""});
  if (!equal || !equal->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) return false;
  Unheard unheard;
  const c10::WarningUtils::WarningHandlerGuard guard(&unheard);
  // Never taken back: there is no moment at which nobody compares any more.
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library->impl("equal", &same_shape);
  at::globalContext().setSDPUseCuDNN(false);
  at::globalContext().setUserEnabledCuDNN(false);
  changed = true;
  return true;
}
