#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <torch/version.h>

#include "pudica/controller.h"
#include "pudica/torch.h"
#include "torch/cuda_part.h"
#include "torch/forwarding_engine.h"
#include "torch/menu_rules.h"
#include "torch/meter.h"
#include "torch/session.h"

namespace pudica {
namespace {

// Runs everything and touches nothing: PUDICA_DISABLE=1.
class InertHandle final : public Handle {
 public:
  explicit InertHandle(std::shared_ptr<Policy> policy) : policy_(std::move(policy)) {}

  void begin_step(const ShapeKey& shape) override { shape_ = shape; }
  void begin_at_layer(const ShapeKey& shape) override { shape_ = shape; }
  bool waits() override { return false; }
  bool went_back() override { return false; }
  StepReport end_step() override {
    StepReport report;
    report.shape = shape_;
    return report;
  }
  std::vector<at::Tensor> layer(std::int64_t /*index*/, const LayerFunction& function,
                                std::vector<at::Tensor> inputs,
                                const LayerOptions& /*options*/) override {
    return function(inputs);
  }
  bool enter_layer(const LayerFunction& /*rerun*/, const std::vector<at::Tensor>& /*inputs*/,
                   const LayerOptions& /*options*/) noexcept override {
    return false;
  }
  void leave_layer(const std::vector<at::Tensor>& /*outputs*/) override {}
  void abandon_layers() noexcept override {}
  [[nodiscard]] bool may_rest() const override { return false; }
  bool rest(std::int64_t /*kind*/, bool /*same_model*/) override { return false; }
  bool passes(std::int64_t /*passed*/) noexcept override { return false; }
  void wake(std::int64_t /*passed*/) noexcept override {}
  void rested(std::int64_t /*passed*/,
              const std::vector<at::Tensor>& /*outputs*/) noexcept override {}
  void count_residents(const std::vector<at::Tensor>& /*tensors*/) override {}
  void set_budget(Bytes /*budget_bytes*/) override {}
  [[nodiscard]] Policy& policy() override { return *policy_; }
  [[nodiscard]] std::int64_t failures() const override { return 0; }
  void detach() override {}

 private:
  std::shared_ptr<Policy> policy_;
  ShapeKey shape_;
};

// The engine is installed while one of these lives. Thread-safe: of two threads, one may detach
// the last session while the other attaches the next.
class EngineUse {
 public:
  EngineUse() {
    const std::lock_guard lock(mutex());
    hooks::install_engine();
    works_ = hooks::engine_self_test();
    ++uses();
  }
  ~EngineUse() {
    const std::lock_guard lock(mutex());
    if (--uses() == 0) hooks::uninstall_engine();
  }
  EngineUse(const EngineUse&) = delete;
  EngineUse& operator=(const EngineUse&) = delete;

  [[nodiscard]] bool works() const { return works_; }

 private:
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  static int& uses() {
    static int count = 0;  // guarded by mutex()
    return count;
  }

  bool works_ = false;
};

// A Session; the engine goes with the last of them.
class AttachedHandle final : public Handle {
 public:
  AttachedHandle(std::unique_ptr<Handle> session, std::unique_ptr<EngineUse> engine)
      : session_(std::move(session)), engine_(std::move(engine)) {}
  ~AttachedHandle() override { give_back(); }

  void begin_step(const ShapeKey& shape) override { session_->begin_step(shape); }
  void begin_at_layer(const ShapeKey& shape) override { session_->begin_at_layer(shape); }
  bool waits() override { return session_->waits(); }
  bool went_back() override { return session_->went_back(); }
  StepReport end_step() override { return session_->end_step(); }
  std::vector<at::Tensor> layer(std::int64_t index, const LayerFunction& function,
                                std::vector<at::Tensor> inputs,
                                const LayerOptions& options) override {
    return session_->layer(index, function, std::move(inputs), options);
  }
  bool enter_layer(const LayerFunction& rerun, const std::vector<at::Tensor>& inputs,
                   const LayerOptions& options) noexcept override {
    return session_->enter_layer(rerun, inputs, options);
  }
  void leave_layer(const std::vector<at::Tensor>& outputs) override {
    session_->leave_layer(outputs);
  }
  void abandon_layers() noexcept override { session_->abandon_layers(); }
  [[nodiscard]] bool may_rest() const override { return session_->may_rest(); }
  bool rest(std::int64_t kind, bool same_model) override {
    return session_->rest(kind, same_model);
  }
  bool passes(std::int64_t passed) noexcept override { return session_->passes(passed); }
  void wake(std::int64_t passed) noexcept override { session_->wake(passed); }
  void rested(std::int64_t passed, const std::vector<at::Tensor>& outputs) noexcept override {
    session_->rested(passed, outputs);
  }
  void count_residents(const std::vector<at::Tensor>& tensors) override {
    session_->count_residents(tensors);
  }
  void set_budget(Bytes budget_bytes) override { session_->set_budget(budget_bytes); }
  [[nodiscard]] Policy& policy() override { return session_->policy(); }
  [[nodiscard]] std::int64_t failures() const override { return session_->failures(); }
  void detach() override { give_back(); }

 private:
  void give_back() {
    session_->detach();
    engine_.reset();
  }

  std::unique_ptr<Handle> session_;
  std::unique_ptr<EngineUse> engine_;  // null once detached
};

bool disabled_by_environment() {
  const char* value = std::getenv("PUDICA_DISABLE");
  return value != nullptr && std::string(value) == "1";
}

}  // namespace

Result<std::unique_ptr<Handle>> attach(AttachOptions options) {
  if (options.budget_bytes < Bytes(0)) {
    return invalid_argument("budget is " + std::to_string(options.budget_bytes.count()) +
                            " bytes; expected 0 (unlimited) or more");
  }
  if (!options.policy) options.policy = make_controller(ControllerOptions{});
  if (disabled_by_environment()) {
    return std::unique_ptr<Handle>(std::make_unique<InertHandle>(std::move(options.policy)));
  }
  if (const auto rule = hooks::rule_without_operator(options.menu_rules)) {
    return invalid_argument("a rule of the menu names '" + *rule +
                            "'; expected the name of an operator that torch knows, such as "
                            "aten::addmm, or its beginning and a *");
  }
  const MenuRules kept{options.policy->keep_operators(), {}};
  if (const auto rule = hooks::rule_without_operator(kept)) {
    return invalid_argument("policy '" + options.policy->name() + "' is to hold the results of '" +
                            *rule +
                            "'; expected the name of an operator that torch knows, such as "
                            "aten::addmm, or its beginning and a *");
  }
  const auto device = install_meter(options.device);
  if (!device) return device.error();
  options.device = *device;
  auto engine = std::make_unique<EngineUse>();
  if (!engine->works()) {
    return Error{ErrorCode::kUnavailable,
                 "the hook layer's self-test failed: this build of torch does not ask the default "
                 "engine for saved-tensor hooks (built for torch " TORCH_VERSION ")"};
  }
  auto session = std::make_unique<hooks::Session>(std::move(options), *hooks::meter_for(*device));
  return std::unique_ptr<Handle>(
      std::make_unique<AttachedHandle>(std::move(session), std::move(engine)));
}

void install_meter() { hooks::cpu_meter(); }

Result<c10::Device> install_meter(c10::Device device) {
  if (!device.is_cpu() && !device.is_cuda()) {
    return invalid_argument("device is " + device.str() + "; expected cpu or cuda");
  }
  if (device.is_cuda()) {
    const std::string& missing = hooks::load_cuda_part();
    if (!missing.empty()) {
      return Error{ErrorCode::kUnavailable, "device " + device.str() + ": " + missing};
    }
    device = hooks::with_index(device);
  }
  try {
    if (hooks::meter_for(device) != nullptr) return device;
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return Error{ErrorCode::kUnavailable,
                 "device " + device.str() + ": " + what.substr(0, what.find('\n'))};
  }
  return Error{ErrorCode::kUnavailable, "device " + device.str() + ": torch finds none here"};
}

namespace {

hooks::Meter& require_meter(c10::Device device) {
  hooks::Meter* meter = hooks::meter_for(device);
  TORCH_CHECK(meter != nullptr, "pudica: no meter for device ", device.str());
  return *meter;
}

}  // namespace

Bytes bytes_in_use(c10::Device device) { return Bytes(require_meter(device).in_use_bytes()); }
Bytes peak_bytes_in_use(c10::Device device) { return Bytes(require_meter(device).peak_bytes()); }
void reset_peak_bytes(c10::Device device) { require_meter(device).reset_peak(); }

Result<c10::Device> expand_segments(c10::Device device) {
  if (!device.is_cuda()) return invalid_argument("device is " + device.str() + "; expected cuda");
  auto metered = install_meter(device);
  if (!metered) return metered;
  const std::string missing = hooks::meter_for(*metered)->expand_segments();
  if (missing.empty()) return metered;
  return Error{ErrorCode::kUnavailable, "device " + metered->str() + ": " + missing};
}

}  // namespace pudica
