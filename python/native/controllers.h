// Controllers: one learned model for each way a Python model is called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pudica/controller.h"

namespace pudica::python {

// A Controller that leads to one of several, by the kind of call that begins a step: which module
// is entered, with which arguments. Calls of other kinds run other layers and have other
// dimensions, so they share nothing learned. Within a kind, keys with other dimension names start
// afresh. Not thread-safe: one owner thread.
class Controllers final : public Controller {
 public:
  explicit Controllers(ControllerOptions options);

  // Of the next step, at least 0; at most kMostKinds are told apart, those beyond share the last.
  // kUnplanned: it has no plan and teaches nothing.
  void select(std::int64_t kind);

  // nullptr: no call of this kind was planned yet.
  [[nodiscard]] const Controller* of(std::int64_t kind) const;

  [[nodiscard]] std::string name() const override { return current().name(); }
  [[nodiscard]] bool wants_menus() const override { return current().wants_menus(); }
  void on_structure(const StepStructure& structure) override;
  StepDecision begin_step(const StepContext& context) override;
  std::optional<StepDecision> replan(const StepContext& context,
                                     std::uint16_t first_class) override {
    return unplanned_ ? std::nullopt : current().replan(context, first_class);
  }
  void end_step(const StepOutcome& outcome) override;
  // Each goes to the model of the call whose step it was of.
  void learn_times(const std::vector<SegmentTime>& times) override;
  void set_budget(Bytes budget_bytes) override;
  [[nodiscard]] ControllerState state() const override { return current().state(); }
  [[nodiscard]] ControllerSnapshot snapshot() const override { return current().snapshot(); }
  [[nodiscard]] Result<ShapeEstimate> estimate(const ShapeKey& shape,
                                               Bytes budget_bytes) const override;
  [[nodiscard]] Result<StepCosts> costs(const StepContext& context) const override;
  // Of the current kind alone.
  [[nodiscard]] std::string serialize(const std::string& fingerprint) const override;
  // A state whose dimensions are not those of the steps is dropped when that shows.
  Result<void> restore(const std::string& text, const std::string& fingerprint) override;

  static constexpr std::int64_t kMostKinds = 16;
  static constexpr std::int64_t kUnplanned = -1;

 private:
  struct Kind {
    std::unique_ptr<Controller> controller;
    const DimensionNames* names = nullptr;  // of its steps; null: none yet
    StepStructure structure;
    std::uint64_t begun = 0;  // the first step of this controller; those before were another's
  };
  // Steps whose times may still come.
  static constexpr std::size_t kStepsRemembered = 64;

  [[nodiscard]] Controller& current() const { return *kind_->controller; }
  void renew(Kind& kind);
  void tell_structure();

  ControllerOptions options_;
  std::map<std::int64_t, Kind> kinds_;
  Kind* kind_ = nullptr;  // of the latest planned step
  bool unplanned_ = false;
  StepStructure latest_;                           // of the latest step that called layers
  std::map<std::uint64_t, Kind*> kinds_of_steps_;  // of the latest
  Bytes budget_bytes_{0};
};

}  // namespace pudica::python
