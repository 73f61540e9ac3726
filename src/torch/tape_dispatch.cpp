#include "torch/tape_dispatch.h"

#include <exception>
#include <memory>
#include <optional>
#include <string_view>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "base/log.h"
#include "torch/flag_guard.h"
#include "torch/meter.h"
#include "torch/tape.h"
#include "torch/tape_operator.h"

namespace pudica::hooks {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

OperatorObserver*& current_observer() {
  static thread_local OperatorObserver* observer = nullptr;
  return observer;
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (OperatorObserver* const observer = current_observer()) {
    observer->record(op, keys, stack);
  } else {
    run_below_tape(op, keys, stack);
  }
}

// Operators under a tape are seen, and give what they give without.
bool self_test() {
  const FlagGuard searching(this_thread_is_searching());  // it may come within a step
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::arange(6, at::kFloat).reshape({2, 3});
  const at::Tensor expected = x.exp().add(x.t().t());
  Tape tape(c10::Device(c10::DeviceType::CPU), /*timed=*/false);
  at::Tensor seen;
  {
    const TapeGuard guard(&tape);
    seen = x.exp().add(x.t().t());
  }
  const std::size_t recorded = tape.entries().size();
  const at::Tensor after = x.exp();  // outside: not seen
  return recorded == 2 && tape.entries().size() == recorded && at::equal(seen, expected) &&
         after.defined();
}

// Views read nothing and make nothing. That is half of a layer's operators, which the dispatcher
// need not put into boxes then. But for the one that changes what autograd saves: calls with and
// without it are not alike.
void let_views_pass(torch::Library& aten) {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace() != std::optional<std::string_view>("aten")) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !facts_of(*op).only_views || name.name == "aten::detach") continue;
    aten.impl(c10::toString(name).c_str(), torch::CppFunction::makeFallthrough());
  }
}

bool install() {
  try {
    // Leaked: operators may run until the process ends.
    static auto* const library =
        new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
    static auto* const aten =
        new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    let_views_pass(*aten);
    if (self_test()) return true;
    log_warn("selective modes are not offered: operators do not reach the tape in this build");
  } catch (const std::exception& error) {
    log_warn(std::string("selective modes are not offered: ") + error.what());
  }
  return false;
}

}  // namespace

TapeGuard::TapeGuard(OperatorObserver* observer)
    : before_(current_observer()), included_before_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  current_observer() = observer;
  c10::impl::tls_set_dispatch_key_included(kKey, observer != nullptr);
}

TapeGuard::~TapeGuard() {
  current_observer() = before_;
  c10::impl::tls_set_dispatch_key_included(kKey, included_before_);
}

void run_below_tape(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

bool tape_available() {
  static const bool available = install();
  return available;
}

}  // namespace pudica::hooks
