#include "torch/forwarding_engine.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/grad_mode.h>

namespace pudica::hooks {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

struct StackEntry {
  SaveMode* mode;
  std::size_t python_hooks;  // Python hooks that were pushed when this mode was
};

std::vector<StackEntry>& mode_stack() {
  static thread_local std::vector<StackEntry> stack;
  return stack;
}

class ForwardingEngine final : public Engine {
 public:
  explicit ForwardingEngine(Engine& inner) : inner_(inner) {}
  ~ForwardingEngine() override { stop(); }

  // NOLINTNEXTLINE(readability-function-size): the signature is torch's
  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return inner_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return inner_.make_anomaly_metadata();
  }

  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    const auto& stack = mode_stack();
    if (stack.empty()) return inner_.get_default_saved_variable_hooks();
    const auto& python = at::SavedTensorDefaultHooks::get_tls_state();
    if (python.is_tracing) return nullptr;  // the rule that Python's own hooks follow
    if (python.stack.size() > stack.back().python_hooks) {
      return inner_.get_default_saved_variable_hooks();  // pushed inside our mode: the inner wins
    }
    return stack.back().mode->make_hooks();
  }

  Engine& inner() { return inner_; }

 private:
  Engine& inner_;
};

std::mutex install_mutex;
ForwardingEngine* forwarding = nullptr;  // leaked: see the header

Engine& forwarding_stub() { return *forwarding; }
Engine& inner_stub() { return forwarding->inner(); }

// Hooks that count how often they pack, for the self-test.
class CountingMode final : public SaveMode {
 public:
  int packed = 0;

  std::unique_ptr<SavedVariableHooks> make_hooks() override {
    struct Hooks final : SavedVariableHooks {
      explicit Hooks(int& counter) : packed(counter) {}
      void call_pack_hook(const at::Tensor& tensor) override {
        ++packed;
        held = tensor.tensor_data();
      }
      at::Tensor call_unpack_hook() override { return held; }
      int& packed;
      at::Tensor held;
    };
    return std::make_unique<Hooks>(packed);
  }
};

}  // namespace

SaveModeGuard::SaveModeGuard(SaveMode* mode) : mode_(mode) {
  mode_stack().push_back({mode, at::SavedTensorDefaultHooks::get_tls_state().stack.size()});
}

SaveModeGuard::~SaveModeGuard() {
  auto& stack = mode_stack();
  const auto latest = std::find_if(stack.rbegin(), stack.rend(),
                                   [this](const StackEntry& entry) { return entry.mode == mode_; });
  if (latest != stack.rend()) stack.erase(std::next(latest).base());
}

void install_engine() {
  const std::lock_guard lock(install_mutex);
  if (forwarding == nullptr) forwarding = new ForwardingEngine(Engine::get_default_engine());
  torch::autograd::set_default_engine_stub(&forwarding_stub);
}

void uninstall_engine() {
  const std::lock_guard lock(install_mutex);
  if (forwarding != nullptr) torch::autograd::set_default_engine_stub(&inner_stub);
}

bool engine_self_test() {
  const torch::autograd::AutoGradMode grad_on(true);
  CountingMode mode;
  at::Tensor result;
  const at::Tensor leaf = at::ones({2}).requires_grad_(true);
  {
    const SaveModeGuard guard(&mode);
    result = leaf.exp();
  }
  return mode.packed == 1 && result.requires_grad();
}

}  // namespace pudica::hooks
