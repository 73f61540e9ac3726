#include "native/rerun_desk.h"

#include <exception>
#include <stdexcept>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>

namespace pudica::python {
namespace {

// A rerun under way on this thread; reruns nest where a layer's backward runs inside another's.
struct Exchange {
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  std::string failure;
};

Exchange*& current_exchange() {
  static thread_local Exchange* exchange = nullptr;
  return exchange;
}

class ExchangeGuard {
 public:
  explicit ExchangeGuard(Exchange& exchange)
      : before_(std::exchange(current_exchange(), &exchange)) {}
  ~ExchangeGuard() { current_exchange() = before_; }
  ExchangeGuard(const ExchangeGuard&) = delete;
  ExchangeGuard& operator=(const ExchangeGuard&) = delete;

 private:
  Exchange* before_;
};

// Past the dispatcher, which modes of the user's would see.
std::int64_t call_python(std::int64_t token) {
  static const c10::OperatorHandle rerun =
      c10::Dispatcher::singleton().findSchemaOrThrow("pudica::rerun", "");
  torch::jit::Stack stack{token};
  try {
    rerun.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (...) {
    throw Interruption(std::current_exception());
  }
  return stack.back().toInt();
}

}  // namespace

struct RerunDesk::Token {
  explicit Token(std::int64_t which) : number(which) {}
  ~Token() {
    RerunDesk& desk = instance();
    const std::lock_guard lock(desk.mutex_);
    desk.dead_.push_back(number);
  }
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;

  std::int64_t number;
};

RerunDesk& RerunDesk::instance() {
  static auto* const desk = new RerunDesk;  // frames may die after static objects
  return *desk;
}

void RerunDesk::open(bool is_open) { open_.store(is_open); }

bool RerunDesk::is_running() { return current_exchange() != nullptr; }

LayerFunction RerunDesk::function(std::int64_t token, std::weak_ptr<const void>& alive) {
  auto living = std::make_shared<Token>(token);
  alive = living;
  return [this, living = std::move(living)](const std::vector<at::Tensor>& inputs) {
    return run(living->number, inputs);
  };
}

std::vector<std::int64_t> RerunDesk::take_dead() {
  const std::lock_guard lock(mutex_);
  return std::exchange(dead_, {});
}

std::vector<at::Tensor> RerunDesk::inputs() const {
  return current_exchange() != nullptr ? current_exchange()->inputs : std::vector<at::Tensor>{};
}

void RerunDesk::set_outputs(std::vector<at::Tensor> outputs) {
  if (current_exchange() != nullptr) current_exchange()->outputs = std::move(outputs);
}

void RerunDesk::set_failure(const std::string& message) {
  if (current_exchange() != nullptr) current_exchange()->failure = message;
}

std::vector<at::Tensor> RerunDesk::run(std::int64_t token, const std::vector<at::Tensor>& inputs) {
  if (!open_.load()) throw std::runtime_error("pudica: the interpreter is gone");
  Exchange exchange{inputs, {}, {}};
  std::int64_t status = 0;
  {
    const ExchangeGuard guard(exchange);
    status = call_python(token);
  }
  if (status == 2) TORCH_CHECK_WITH(OutOfMemoryError, false, exchange.failure);
  if (status == 3) throw Deviation(exchange.failure);
  if (status != 0) throw std::runtime_error(exchange.failure);
  return std::move(exchange.outputs);
}

}  // namespace pudica::python
