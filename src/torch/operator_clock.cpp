#include "torch/operator_clock.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <ATen/Tensor.h>
#include <ATen/record_function.h>

#include "pudica/torch.h"
#include "torch/tensor_bytes.h"

namespace pudica::hooks {
namespace {

// A modest machine: only ratios count.
constexpr double kFlopsPerSecond = 2e10;
constexpr double kBytesPerSecond = 1e10;
constexpr double kSecondsPerOperator = 1e-6;

std::string_view without_namespace(std::string_view name) {
  const std::size_t colon = name.rfind(':');
  return colon == std::string_view::npos ? name : name.substr(colon + 1);
}

const at::Tensor* tensor_at(c10::ArrayRef<const c10::IValue> arguments, std::size_t index) {
  if (index >= arguments.size() || !arguments[index].isTensor()) return nullptr;
  const at::Tensor& tensor = arguments[index].toTensor();
  return tensor.defined() ? &tensor : nullptr;
}

double elements(const at::Tensor& tensor) { return static_cast<double>(tensor.numel()); }

double size_along(const at::Tensor& tensor, std::int64_t dimension) {
  if (tensor.dim() == 0) return 1;
  if (dimension < 0) dimension += tensor.dim();
  return static_cast<double>(tensor.size(std::clamp<std::int64_t>(dimension, 0, tensor.dim() - 1)));
}

// Products: two arguments, and which size of the second each element of the first meets.
struct Product {
  std::string_view name;
  std::size_t left;
  std::size_t right;
  std::int64_t dimension;
};
constexpr std::array<Product, 11> kProducts{{{"mm", 0, 1, -1},
                                             {"bmm", 0, 1, -1},
                                             {"matmul", 0, 1, -1},
                                             {"mv", 0, 1, 1},
                                             {"linear", 0, 1, 0},
                                             {"addmm", 1, 2, -1},
                                             {"addmm_", 1, 2, -1},
                                             {"_addmm_activation", 1, 2, -1},
                                             {"baddbmm", 1, 2, -1},
                                             {"baddbmm_", 1, 2, -1},
                                             {"mkldnn_linear", 0, 1, 0}}};

// Queries times keys and weights times values: of the first two arguments with four dimensions.
double attention_flops(c10::ArrayRef<const c10::IValue> arguments) {
  const at::Tensor* queries = nullptr;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const at::Tensor* const one = tensor_at(arguments, i);
    if (one == nullptr || one->dim() != 4) continue;
    if (queries != nullptr) return 4 * elements(*queries) * size_along(*one, -2);
    queries = one;
  }
  return 0;
}

double flops_of(std::string_view name, c10::ArrayRef<const c10::IValue> arguments) {
  if (name.find("attention") != std::string_view::npos) return attention_flops(arguments);
  if (name.find("convolution") != std::string_view::npos) {
    const at::Tensor* const input = tensor_at(arguments, 0);
    const at::Tensor* const weight = tensor_at(arguments, 1);
    if (input == nullptr || weight == nullptr) return 0;
    return 2 * elements(*input) * elements(*weight) / std::max(1.0, size_along(*weight, 1));
  }
  const auto product = std::ranges::find(kProducts, name, &Product::name);
  if (product == kProducts.end()) return 0;
  const at::Tensor* const left = tensor_at(arguments, product->left);
  const at::Tensor* const right = tensor_at(arguments, product->right);
  if (left == nullptr || right == nullptr) return 0;
  return 2 * elements(*left) * size_along(*right, product->dimension);
}

// Whole ones: between two readings passes the same whatever was counted before.
std::atomic<std::int64_t>& nanoseconds() {
  static std::atomic<std::int64_t> counted{0};
  return counted;
}

// Operators that others call are part of them: how a call is taken apart differs between
// processors.
int& operators_open() {
  static thread_local int open = 0;
  return open;
}

// The engine announces the nodes of a graph as functions too.
bool is_operator(const at::RecordFunction& function) {
  return function.operator_name().has_value();
}

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function) {
  if (!is_operator(function)) return nullptr;
  if (operators_open()++ > 0) return nullptr;
  const OperatorLoad load = load_of(function.name(), function.inputs());
  const double seconds =
      kSecondsPerOperator + load.flops / kFlopsPerSecond + load.bytes / kBytesPerSecond;
  nanoseconds().fetch_add(std::llround(1e9 * seconds));
  return nullptr;
}

void end_operator(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
  if (is_operator(function)) --operators_open();
}

class OperatorClock final : public WorkClock {
 public:
  OperatorClock()
      : callback_(at::addGlobalCallback(at::RecordFunctionCallback(&begin_operator, &end_operator)
                                            .needsInputs(true)
                                            .scopes({at::RecordScope::FUNCTION}))) {}
  ~OperatorClock() override { at::removeCallback(callback_); }
  OperatorClock(const OperatorClock&) = delete;
  OperatorClock& operator=(const OperatorClock&) = delete;

  [[nodiscard]] double seconds() noexcept override {
    return 1e-9 * static_cast<double>(nanoseconds().load());
  }

 private:
  at::CallbackHandle callback_;
};

}  // namespace

OperatorLoad load_of(std::string_view name, c10::ArrayRef<const c10::IValue> arguments) {
  OperatorLoad load;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const at::Tensor* const tensor = tensor_at(arguments, i);
    if (tensor != nullptr) load.bytes += static_cast<double>(bytes_of(*tensor));
  }
  load.flops = flops_of(without_namespace(name), arguments);
  return load;
}

}  // namespace pudica::hooks

namespace pudica {

std::shared_ptr<WorkClock> operator_clock() {
  static std::mutex mutex;
  static std::weak_ptr<WorkClock> known;
  const std::lock_guard lock(mutex);
  auto clock = known.lock();
  if (!clock) {
    clock = std::make_shared<hooks::OperatorClock>();
    known = clock;
  }
  return clock;
}

}  // namespace pudica
