// The controller's state and steps. Included by the controller's own sources and by nobody else.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/base_bytes.h"
#include "controller/claims.h"
#include "controller/menu_lessons.h"
#include "controller/phase.h"
#include "controller/room.h"
#include "controller/shared_step.h"
#include "controller/step_kinds.h"
#include "pudica/controller.h"
#include "pudica/plan_builder.h"
#include "pudica/step_learner.h"

namespace pudica {

// Whether a peak may be off by such a share of it that it is bounded, and not predicted.
bool tells_little(Bytes point, Bytes upper);

// Parts: deciding (controller.cpp), plans (controller_plans.cpp), the layers that are planned for
// (controller_structure.cpp), learning from outcomes (controller_outcome.cpp), what a restored
// state is worth (controller_claims.cpp), and reports and state (controller_report.cpp). Not
// thread-safe: one owner thread.
class ControllerImpl final : public Controller, public ForwardOwner {
 public:
  explicit ControllerImpl(const ControllerOptions& options);
  ~ControllerImpl() override;
  ControllerImpl(const ControllerImpl&) = delete;
  ControllerImpl& operator=(const ControllerImpl&) = delete;

  [[nodiscard]] std::string name() const override { return "pudica"; }
  void on_structure(const StepStructure& told) override;
  [[nodiscard]] bool wants_menus() const override { return on_menu(Mode::Kind::kSelective); }
  StepDecision begin_step(const StepContext& context) override;
  std::optional<StepDecision> replan(const StepContext& context,
                                     std::uint16_t first_class) override;
  void end_step(const StepOutcome& outcome) override;
  void learn_times(const std::vector<SegmentTime>& times) override;
  void set_budget(Bytes budget_bytes) override { room_.set_budget(budget_bytes); }
  [[nodiscard]] ControllerState state() const override { return phase_.state; }
  [[nodiscard]] ControllerSnapshot snapshot() const override;
  [[nodiscard]] Result<ShapeEstimate> estimate(const ShapeKey& shape,
                                               Bytes budget_bytes) const override;
  [[nodiscard]] Result<StepCosts> costs(const StepContext& context) const override;
  [[nodiscard]] std::string serialize(const std::string& fingerprint) const override;
  Result<void> restore(const std::string& text, const std::string& fingerprint) override;

  [[nodiscard]] Result<StepModel> model_at(std::uint8_t kind,
                                           const StepContext& context) const override;
  void learn_waited(std::uint8_t kind, const WaitedForward& waited) override;

 private:
  Result<ShapeEstimate> estimated(const ShapeKey& shape, Bytes budget_bytes) const;
  // Steps spent on the selective modes of a menu before planning does without the rest.
  static constexpr std::int64_t kMostMenuSteps = 24;
  // Such as cost nothing beside what is planned: plans that rest on what menus promise.
  static constexpr std::int64_t kMostPromisedSteps = 96;
  // Askings for what is wanted, in a row and for nothing, before they grow rare.
  static constexpr std::int64_t kMostIdleAsks = 32;

  // The decision that the next outcome belongs to.
  struct Pending {
    std::uint64_t plan_id = 0;
    bool planned = false;     // by the model, not to teach
    bool identified = false;  // its prediction is a point estimate worth judging
  };
  // Deciding.
  StepDecision contained(const StepContext& context, const std::function<StepDecision()>& decide);
  void begin_context(const StepContext& context);
  StepDecision decide(const StepContext& context);
  StepDecision publish_hit(const CachedPlan& entry, const StepContext& context);
  StepDecision plan_step(const StepContext& context, const StepModel& model);
  [[nodiscard]] CachedPlan cached_plan(const StepContext& context, const StepModel& model,
                                       const BuiltPlan& built) const;
  StepDecision try_claims(BuiltPlan built, const StepModel& model, const StepContext& context,
                          bool certain);
  StepDecision plan_shared(const StepContext& context, const StepModel& model);
  // Forwards that share a backward (controller_shared.cpp): what follows, in turn; empty where
  // something of it is not known.
  std::vector<StepModel> models_behind(const StepContext& context);
  void predict_shared(const StepContext& context, const StepModel& model,
                      const LayerClasses& behind, BuiltPlan& built);
  [[nodiscard]] bool shows_others(const StepContext& context) const;
  [[nodiscard]] bool is_followed(const StepKind& kind) const;
  void take_waited(const StepOutcome& outcome);
  bool wants_record(const StepContext& context, const StepModel& model, bool certain);
  bool may_teach(const StepContext& context, const StepModel& model, const Plan& plan);
  void measure_in(Plan& plan, Bytes most, const std::vector<MenuLesson>& lessons);
  // True: the plan measures modes that were not measured yet. (controller_lessons.cpp)
  bool measure_menu(const StepContext& context, const StepModel& model, BuiltPlan& built);
  // For modes that were not measured yet: the plan with them as promised, nullopt where that is no
  // cheaper; what it takes, noted; the plan with them at the most that they may need; lessons
  // beside.
  [[nodiscard]] std::optional<BuiltPlan> hoped_for(const StepKind& kind, const StepContext& context,
                                                   const StepModel& model, const Plan& plan) const;
  bool note_wanted(const StepContext& context, const StepModel& model, const Plan& plan);
  std::vector<MenuLesson> plan_on_promises(const StepContext& context, const StepModel& model,
                                           BuiltPlan& built);
  bool measure_beside(const StepContext& context, StepModel asked, BuiltPlan& built,
                      std::vector<MenuLesson> lessons);
  StepDecision teach_step(const StepContext& context, const Result<StepModel>& model);
  StepDecision teach_joined_step(Plan plan);
  StepDecision fallback_step(const StepContext& context);
  StepDecision publish(Plan plan, Pending pending, bool record);
  void settle_room();
  void stand_down(const std::string& reason);
  [[nodiscard]] std::unique_ptr<StepKind> make_kind(std::uint8_t number) const;
  void predictions_changed(std::uint64_t step);
  void times_changed();
  void clear_plans();
  [[nodiscard]] Result<StepModel> model_of(const StepKind& kind, const StepContext& context) const;
  [[nodiscard]] Mode default_mode() const;
  [[nodiscard]] std::vector<Mode::Kind> plain_menu() const;
  [[nodiscard]] bool on_menu(Mode::Kind kind) const;
  StepKind& kind_of(const StepStructure& structure);
  StepKind& fresh_kind();
  void forget_kinds();
  void adopt(const StepStructure& structure);
  void take_parts(const StepStructure& structure);
  void let_pass(const StepStructure& structure);
  void note_change();
  bool is_passing();
  void set_first_apart(StepStructure& structure) const;
  void learn_first_apart(const StepOutcome& outcome);
  [[nodiscard]] StepOutcome placed(StepOutcome outcome, const StepKind& kind) const;
  // Layers that come and go from step to step: which ones this step runs is not known before.
  [[nodiscard]] bool is_restless() const;
  StepDecision reissued(StepDecision decision, const std::string& why,
                        const std::function<void(Plan&)>& change);
  StepDecision revocably(StepDecision decision, const char* why);
  StepDecision without_prediction(StepDecision decision, const char* why);
  void keep_apart(const StepStructure& old);
  void take_menus(const StepStructure& old);
  [[nodiscard]] BuiltPlan built_plan(const StepKind& kind, const StepContext& context,
                                     const StepModel& model,
                                     std::span<const std::uint8_t> warm) const;
  [[nodiscard]] PlanRequest request_of(const StepKind& kind, const StepContext& context,
                                       const StepModel& model) const;
  [[nodiscard]] BuiltPlan best_plan(const StepKind& kind, PlanRequest request,
                                    const StepModel& model,
                                    std::span<const std::uint8_t> warm) const;

  // What a step of the plan needs less than predicted where its kept layers have no hooks.
  [[nodiscard]] bool may_be_spared(const StepContext& context, const Plan& plan) const;
  [[nodiscard]] Bytes spared_bytes(const StepContext& context, const Plan& plan) const;
  // What keeping all needs at the context's shape: as it was measured, else as it is expected.
  [[nodiscard]] Bytes keep_all_peak(const StepKind& kind, const StepContext& context,
                                    const StepModel& model) const;
  // Whether modes that are not known yet may make the plan cheaper.
  [[nodiscard]] bool awaits_modes(const StepKind& kind, const StepContext& context,
                                  const StepModel& model, const Plan& plan) const;

  // Whether steps have run that were nearly as large in every dimension.
  [[nodiscard]] bool is_covered(const ShapeKey& shape) const;

  // Outcomes.
  void take_outcome(const StepOutcome& outcome);
  void note_unjudged(const StepOutcome& outcome);
  void note_lost(const Plan& plan);
  std::optional<double> judge(const StepOutcome& outcome);
  void note_peak(const StepOutcome& outcome);
  void learn(const StepOutcome& outcome);
  void remember_peak(const StepOutcome& outcome);
  bool agrees_with_claims(const StepOutcome& outcome, std::optional<double> peak_error);
  void drop_claims();
  [[nodiscard]] bool keeping_may_not_fit(const StepContext& context) const;

  // Reports and state.
  void add_regions(const StepKind& kind, std::vector<CachedPlan>& plans) const;
  [[nodiscard]] std::string state_body() const;
  Result<void> take_state_body(const std::string& body);

  ControllerOptions options_;
  std::unique_ptr<Planner> planner_;
  StepLearner learner_;
  StepKinds kinds_;
  StepKind* kind_;        // of the step under way, or of the latest
  StepKind* told_;        // of the structure that was told last
  StepStructure latest_;  // that structure
  std::set<std::uint16_t>
      first_apart_;                // classes whose layers need something else as a step's first
  std::uint8_t planned_kind_ = 0;  // that the latest decision is for
  Claims claims_;
  Room room_;
  BaseBytes base_;
  std::shared_ptr<WaitingForwards> waiting_;
  Phase phase_;
  ControllerCounters counters_;
  std::uint64_t step_ = 0;
  std::uint64_t next_plan_id_ = 1;
  Pending pending_;

  std::vector<std::int64_t> largest_;  // of each dimension, over the steps that ended
  bool short_of_room_ = false;         // a plan could not keep everything
  // The most that a step without a prediction needed above its base, where the allocator caches.
  Bytes unplanned_need_bytes_{0};
  bool broken_ = false;  // an exception was contained: stand down
  std::deque<PeakRecord> recent_peaks_;
  mutable std::map<std::uint64_t, std::vector<ShapeKey>> regions_;  // by plan id
  mutable std::uint64_t regions_version_ = 0;
};

}  // namespace pudica
