// The controller's state and steps. Included by the controller's own sources and by nobody else.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/claims.h"
#include "controller/known_peaks.h"
#include "controller/margin.h"
#include "controller/phase.h"
#include "controller/plan_builder.h"
#include "controller/plan_store.h"
#include "controller/segment_store.h"
#include "controller/step_model.h"
#include "controller/tight_shapes.h"
#include "pudica/controller.h"

namespace pudica {

// Parts: deciding (controller.cpp), the layers that are planned for (controller_structure.cpp),
// learning from outcomes (controller_outcome.cpp), what a restored state is worth
// (controller_claims.cpp), and reports and state (controller_report.cpp). Not thread-safe: one
// owner thread.
class ControllerImpl final : public Controller {
 public:
  explicit ControllerImpl(const ControllerOptions& options);

  [[nodiscard]] std::string name() const override { return "pudica"; }
  void on_structure(const StepStructure& structure) override;
  [[nodiscard]] bool wants_menus() const override { return on_menu(Mode::Kind::kSelective); }
  StepDecision begin_step(const StepContext& context) override;
  void end_step(const StepOutcome& outcome) override;
  void learn_times(const std::vector<SegmentTime>& times) override;
  void set_budget(Bytes budget_bytes) override { budget_bytes_ = budget_bytes; }
  [[nodiscard]] ControllerState state() const override { return phase_.state; }
  [[nodiscard]] ControllerSnapshot snapshot() const override;
  [[nodiscard]] Result<ShapeEstimate> estimate(const ShapeKey& shape,
                                               Bytes budget_bytes) const override;
  [[nodiscard]] Result<StepCosts> costs(const StepContext& context) const override;
  [[nodiscard]] std::string serialize(const std::string& fingerprint) const override;
  Result<void> restore(const std::string& text, const std::string& fingerprint) override;

 private:
  Result<ShapeEstimate> estimated(const ShapeKey& shape, Bytes budget_bytes) const;
  // Steps spent on the selective modes of a menu before planning does without the rest.
  static constexpr std::int64_t kMostMenuSteps = 24;

  // The decision that the next outcome belongs to.
  struct Pending {
    std::uint64_t plan_id = 0;
    bool planned = false;     // by the model, not to teach
    bool identified = false;  // its prediction is a point estimate worth judging
  };
  // Shapes, oldest first; bounded.
  class ShapeSet {
   public:
    [[nodiscard]] bool contains(const ShapeKey& key) const { return members_.contains(key); }
    [[nodiscard]] bool empty() const { return members_.empty(); }
    void insert(const ShapeKey& key);
    void erase(const ShapeKey& key) { members_.erase(key); }
    void clear() { members_.clear(); }

   private:
    static constexpr std::size_t kCapacity = 512;
    std::set<ShapeKey> members_;
  };

  // Deciding.
  StepDecision decide(const StepContext& context);
  StepDecision publish_hit(const CachedPlan& entry, const StepContext& context);
  StepDecision plan_step(const StepContext& context, const StepModel& model);
  [[nodiscard]] CachedPlan cached_plan(const StepContext& context, const StepModel& model,
                                       const BuiltPlan& built) const;
  StepDecision try_claims(BuiltPlan built, const StepModel& model, const StepContext& context,
                          bool certain);
  StepDecision plan_shared(const StepContext& context, const StepModel& model);
  bool wants_record(const StepContext& context, const StepModel& model, bool certain);
  bool take_lessons(const StepContext& context, const StepModel& model, BuiltPlan& built);
  StepDecision teach_step(const StepContext& context, const Result<StepModel>& model);
  StepDecision teach_joined_step(Plan plan);
  StepDecision fallback_step(const StepContext& context);
  StepDecision publish(Plan plan, Pending pending, bool record);
  void note_budget(StepContext& context);
  void note_base(const StepContext& context);
  void apply_available(Bytes budget_bytes);
  void begin_learning();
  void stand_down(const std::string& reason);
  [[nodiscard]] Result<StepModel> model_of(const StepContext& context) const;
  [[nodiscard]] Mode default_mode() const;
  [[nodiscard]] std::vector<Mode::Kind> plain_menu() const;
  // Held back from a budget: as at the latest step under it, else by the errors known.
  [[nodiscard]] Bytes margin_at(Bytes budget_bytes) const;
  [[nodiscard]] bool on_menu(Mode::Kind kind) const;
  void adopt(const StepStructure& structure);
  void take_parts(const StepStructure& structure);
  void let_pass(const StepStructure& structure);
  void note_change();
  bool is_passing();
  [[nodiscard]] StepOutcome placed(StepOutcome outcome) const;
  // Layers that come and go from step to step: which ones this step runs is not known before.
  [[nodiscard]] bool is_restless() const;
  // Whether shapes of this kind were seen to run other layers than those planned for.
  [[nodiscard]] bool runs_others(const ShapeKey& shape) const;
  void note_others(const StepOutcome& outcome);
  StepDecision without_prediction(StepDecision decision, const char* why);
  void keep_apart(const StepStructure& old);
  void take_menus(const StepStructure& old);
  [[nodiscard]] BuiltPlan built_plan(const StepContext& context, const StepModel& model,
                                     std::span<const std::uint8_t> warm) const;
  [[nodiscard]] BuiltPlan best_plan(PlanRequest request, const StepModel& model,
                                    std::span<const std::uint8_t> warm) const;

  // What keeping all needs at the context's shape: as it was measured, else as it is expected.
  [[nodiscard]] Bytes keep_all_peak(const StepContext& context, const StepModel& model) const;
  // Whether some mode that could make a plan cheaper has still to be measured.
  [[nodiscard]] bool awaits_modes(const StepModel& model) const;

  // Whether steps have run that were nearly as large in every dimension.
  [[nodiscard]] bool is_covered(const ShapeKey& shape) const;

  // Outcomes.
  void take_outcome(const StepOutcome& outcome);
  std::optional<bool> judge(const StepOutcome& outcome);
  void note_peak(const StepOutcome& outcome);
  void learn(const StepOutcome& outcome);
  void remember_peak(const StepOutcome& outcome);
  bool agrees_with_claims(const StepOutcome& outcome, std::optional<bool> peak);
  void drop_claims();
  [[nodiscard]] bool keeping_may_not_fit(const StepContext& context) const;

  // Reports and state.
  [[nodiscard]] StepContext context_at(const ShapeKey& shape, Bytes budget_bytes) const;
  void add_regions(std::vector<CachedPlan>& plans) const;
  [[nodiscard]] std::string state_body() const;
  Result<void> take_state_body(const std::string& body);

  ControllerOptions options_;
  std::unique_ptr<Planner> planner_;
  SegmentStore store_;
  PlanStore plans_;
  KnownPeaks known_peaks_;
  Claims claims_;
  TightShapes tight_shapes_;
  Margin margin_;
  DriftDetector drift_;
  Phase phase_;
  StepStructure structure_;
  std::optional<StepStructure> passing_;  // of the latest steps, other than structure_
  int passing_steps_ = 0;
  // Which dimensions were 1, in bits, where a step ran other layers and needed another peak.
  std::set<std::uint64_t> others_at_;
  std::deque<std::uint64_t> changes_;  // steps in which the structure changed, the latest ones
  ControllerCounters counters_;
  std::uint64_t step_ = 0;
  std::uint64_t next_plan_id_ = 1;
  Pending pending_;

  Bytes budget_bytes_{0};                   // in force
  Bytes context_budget_bytes_{-1};          // last seen in a context: the latest change wins
  Bytes available_bytes_{0};                // budget less margin, as the cached plans know it
  Bytes deferred_growth_bytes_{0};          // since older plans were last dropped for it
  Bytes available_budget_bytes_{-1};        // the budget that belongs to it
  std::array<Bytes, 2> last_base_bytes_{};  // without and with gradients present
  bool base_known_[2] = {false, false};
  // After a restore, until the optimizer's first step is over: the base bytes of the steps behind
  // it, which it leads to. nullopt: over, or nothing was restored.
  std::array<std::optional<Bytes>, 2> coming_base_bytes_;
  Bytes state_bytes_{0};           // that the step's optimizer will make
  Bytes most_returning_bytes_{0};  // that was seen

  std::vector<std::int64_t> largest_;  // of each dimension, over the steps that ended
  std::int64_t recorded_steps_ = 0;    // that taught something
  std::int64_t learning_steps_ = 0;    // since learning last began
  std::int64_t curious_steps_ = 0;     // recorded while planning, since learning last began
  std::int64_t menu_steps_ = 0;        // spent on a menu since it appeared
  bool short_of_room_ = false;         // a plan could not keep everything
  bool relearning_ = false;            // a drift or a new structure: record before planning again
  std::int32_t doubtful_steps_ = 0;    // recorded steps whose misfits are drift: forgotten
  bool learning_was_revoked_ = false;  // in the last step that taught
  // The most that a step without a prediction needed above its base, where the allocator caches.
  Bytes unplanned_need_bytes_{0};
  bool judge_drift_ = false;  // the next recorded step tells whether the drift was real
  bool broken_ = false;       // an exception was contained: stand down
  ShapeSet to_record_;        // when they appear next
  ShapeSet recorded_again_;   // recorded for a misfit before
  std::deque<PeakRecord> recent_peaks_;
  mutable std::map<std::uint64_t, std::vector<ShapeKey>> regions_;  // by plan id
  mutable std::uint64_t regions_version_ = 0;
};

}  // namespace pudica
