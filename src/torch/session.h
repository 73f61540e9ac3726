// Session: the Handle of an attached model. Runs layers in frames as the plan says, measures steps.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "pudica/torch.h"
#include "torch/cache_comfort.h"
#include "torch/cast_cache.h"
#include "torch/cut_short.h"
#include "torch/device_share.h"
#include "torch/frame.h"
#include "torch/gap_habit.h"
#include "torch/gradient_source.h"
#include "torch/held_predictions.h"
#include "torch/late_times.h"
#include "torch/meter.h"
#include "torch/output_watch.h"
#include "torch/recorder.h"
#include "torch/registry.h"
#include "torch/residents.h"
#include "torch/rest_habit.h"
#include "torch/shared_backward.h"
#include "torch/size_groups.h"
#include "torch/step_profile.h"
#include "torch/step_state.h"
#include "torch/work_clock.h"

namespace pudica::hooks {

class Session final : public Handle {
 public:
  Session(AttachOptions options, Meter& meter);
  ~Session() override;

  void begin_step(const ShapeKey& shape) override;
  void begin_at_layer(const ShapeKey& shape) override;
  bool waits() override;
  bool went_back() override { return step_open_ && shared_backward_.own_went_back(); }
  StepReport end_step() override;
  std::vector<at::Tensor> layer(std::int64_t index, const LayerFunction& function,
                                std::vector<at::Tensor> inputs,
                                const LayerOptions& options) override;
  bool enter_layer(const LayerFunction& rerun, const std::vector<at::Tensor>& inputs,
                   const LayerOptions& options) noexcept override;
  void leave_layer(const std::vector<at::Tensor>& outputs) override;
  void abandon_layers() noexcept override;
  [[nodiscard]] bool may_rest() const override;
  bool rest(std::int64_t kind, bool same_model) override;
  bool passes(std::int64_t passed) noexcept override;
  void wake(std::int64_t passed) noexcept override;
  void rested(std::int64_t passed, const std::vector<at::Tensor>& outputs) noexcept override;
  void count_residents(const std::vector<at::Tensor>& tensors) override;
  void set_budget(Bytes budget_bytes) override;
  [[nodiscard]] Policy& policy() override { return *options_.policy; }
  [[nodiscard]] std::int64_t failures() const override { return failures_; }
  void detach() override;

 private:
  // One layer call of the step under way.
  struct Call {
    std::uint16_t layer_class = 0;
    std::size_t place = 0;  // in the plan
    Mode mode;
    bool joined = false;
    bool apart = false;       // see StepStructure::Layer
    bool collected = false;   // searched for its class's menu
    bool taken_back = false;  // what it let go came back: its times are not the layer's
    bool on_trial = false;
    bool dropped_late = false;  // kept until its end: it ran other operators than expected
    bool no_gradient = false;   // flows through it
    bool hook_free = false;
    bool passed_by = false;  // nothing was seen of it
    double forward_us = 0;   // on the host
    WorkTime forward;        // without what a frame does at its end
  };
  // The layer that this thread is inside of.
  struct OpenLayer {
    std::size_t ordinal = 0;
    std::shared_ptr<Frame> frame;  // null: kept without hooks
    bool continues = false;        // the next layer joins the frame
    std::vector<at::Tensor> inputs;
    std::vector<GradientSource> input_sources;
    HostInstant began;
    WorkInstant work_began;
    LayerDepth depth;
  };

  // Another thread is in the middle of a layer: the step is its own, and stays. Said once.
  bool is_another_threads();
  // The step under way, which ends, is none to learn from.
  [[nodiscard]] bool is_cut_short() const;
  template <typename F>
  bool contain(const char* where, F&& call) noexcept;
  void fail(const char* where, const std::string& what) noexcept;

  [[nodiscard]] bool takes_part() const;
  std::uint16_t add_class(std::string name);
  [[nodiscard]] std::uint16_t class_of(const std::string& name,
                                       const std::vector<at::Tensor>& inputs,
                                       std::size_t telling_inputs);
  [[nodiscard]] std::size_t place_of(std::uint16_t layer_class) const;
  [[nodiscard]] Mode mode_of(std::size_t place, std::uint16_t layer_class) const;
  [[nodiscard]] bool is_joined(std::size_t place) const;
  // Whether a call there is one of the plan's; of plans that name none, any is.
  [[nodiscard]] bool is_foreseen(std::size_t place, std::uint16_t layer_class) const;
  [[nodiscard]] bool keeps_revocably() const;
  // In use beyond what was as the step began.
  [[nodiscard]] std::int64_t grown_bytes() const { return meter_.in_use_bytes() - in_use_before_; }
  [[nodiscard]] bool wants_tape(const Call& call) const;
  [[nodiscard]] bool is_hook_free(const Call& call) const;
  // Its place as the tapes have it: where weights are cast already other operators run.
  [[nodiscard]] std::size_t tape_place(const Call& call) const {
    return 2 * call.place + (context_.casts_present ? 1 : 0);
  }
  [[nodiscard]] bool gradients_present() const;
  [[nodiscard]] std::shared_ptr<const ClassMenu> menu_of(std::uint16_t layer_class) const;
  std::shared_ptr<Frame> open_frame(std::size_t ordinal, const Call& call, bool on_trial);
  void open_step(const ShapeKey& shape, bool at_layer);
  void settle_decision(std::uint16_t first_class);
  void begin_call(const LayerFunction& rerun, const std::vector<at::Tensor>& inputs,
                  const LayerOptions& options);
  void finish_call(const std::vector<at::Tensor>& outputs);
  void finish_frame(Call& call, const std::vector<at::Tensor>& outputs);
  void note_strangers(std::uint16_t layer_class);
  [[nodiscard]] bool needs_trial(std::uint16_t layer_class, const LayerOptions& options) const;
  void close_segment();
  const std::shared_ptr<HostTier>& host_tier();
  void hook_borders(std::size_t ordinal, const OpenLayer& open,
                    const std::vector<at::Tensor>& outputs);
  [[nodiscard]] bool reads_latest(const std::vector<at::Tensor>& inputs) const;
  // Of a call that reads nothing of the one before it, as far as that was seen.
  [[nodiscard]] bool is_apart(std::size_t ordinal, const std::vector<at::Tensor>& inputs) const;
  void hook_handover(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs);
  void hook_gap(std::size_t ordinal, const std::vector<at::Tensor>& inputs);
  void hook(const std::vector<at::Tensor>& tensors, MarkKind kind, std::size_t ordinal);
  // Of the step's calls, where they were looked at: StepReport::ran_free.
  [[nodiscard]] bool ran_free() const;
  void note_hook_free(const StepReport& report);
  void note_course(bool waits);
  void judge_prediction(const StepReport& report);
  void prepare_cache();
  [[nodiscard]] Bytes left_free_bytes() const;
  void report_cache(StepReport& report);
  void tell_refusals();
  void note_comfort(const StepReport& report, const CacheBytes& cache);
  void advise(const CacheBytes& cache);
  [[nodiscard]] StepContext context_of(const ShapeKey& shape, bool casts_present) const;
  [[nodiscard]] StepOutcome outcome_of(const StepReport& report) const;
  [[nodiscard]] StepStructure structure_of_step() const;
  // No call was kept to be searched or tried, or until its end, none was strange.
  [[nodiscard]] bool ran_as_planned() const;
  // Of the step under way, whose structure is `structure`.
  [[nodiscard]] std::vector<std::int64_t> shared_frees() const;
  [[nodiscard]] std::vector<RecordedCall> recorded_calls(const StepStructure& structure) const;
  // Of the step under way, which was recorded: it waits itself, or those before it are told.
  void tell_waiting(bool waits, const std::vector<RecordedCall>& calls, StepOutcome& outcome);
  void complete(const ForwardNotes& notes, RecordedStep& step) const;
  [[nodiscard]] std::vector<WaitedForward> waited_forwards();
  [[nodiscard]] WorkTimer timer_of_step() const;
  [[nodiscard]] bool is_timed() const;
  void learn_times();
  void learn_late_times();
  AttachOptions options_;
  std::shared_ptr<DeviceShare> share_;  // null once detached
  Meter& meter_;
  std::shared_ptr<Registry> registry_;
  std::shared_ptr<StepState> state_;
  KeptResults::Names keep_operators_;          // the policy's; null: none
  std::shared_ptr<EvictionControl> eviction_;  // likewise
  Residents residents_;
  bool attached_ = true;
  std::int64_t failures_ = 0;
  bool policy_failed_ = false;
  std::shared_ptr<HostTier> host_;  // from the first layer of mode `offload` on
  HostClock host_clock_;
  std::shared_ptr<DeviceClock> clock_;  // null: the host's
  LateTimes late_times_;

  // Layers that save alike, but for their size.
  struct LayerKind {
    SizeGroups sizes;
    std::vector<std::uint16_t> classes;  // by group
  };
  std::map<std::string, LayerKind, std::less<>> kinds_;
  CastCache casts_;
  std::vector<std::string> class_names_;
  std::vector<double> class_forward_us_;
  std::vector<std::shared_ptr<ClassTapes>> class_tapes_;  // null: not for this policy or build
  std::map<std::uint16_t, std::shared_ptr<OffloadHabit>> offload_habits_;
  struct Waiting {
    std::uint64_t number = 0;  // the step's
    WaitedForward forward;
    RecordedStep step;
  };
  std::vector<Waiting> waiting_;  // recorded forwards, oldest first
  StepStructure structure_;

  // The step under way.
  bool step_open_ = false;
  std::uint64_t step_ = 0;
  StepContext context_;
  StepDecision decision_;
  WorkTimer timer_;
  std::vector<Call> calls_;
  // Classes of the step under way that ran other operators than their menu is for.
  std::set<std::uint16_t> strange_;
  std::set<std::uint16_t> strayed_;  // calls of these ran other operators than expected
  std::unique_ptr<OpenLayer> open_layer_;
  std::atomic<std::thread::id> inside_{};  // the thread that is in a layer; none: no thread's id
  bool told_of_two_threads_ = false;
  std::vector<GradientSource> latest_outputs_;  // of the latest layer, where it is recorded
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> latest_storages_;  // of its outputs
  std::shared_ptr<Frame> open_segment_;
  std::thread::id thread_;  // that began the step: layers of other threads just run
  // The backward in a hook of which the step began (GradCache), -1: none. Layers in another one are
  // run again, by a checkpoint of the user's.
  int within_backward_ = -1;
  std::uint64_t sequence_began_ = 0;  // of the graph's nodes, as the step began
  bool began_at_layer_ = false;
  std::optional<std::int64_t> in_use_at_forward_;  // as one began since, that waits() was true for
  bool ran_hook_free_ = false;                     // layers of the latest step that is over
  // So many more with a backward of their own, since one waited for another's though none was to
  // follow: a forward without gradients, before whose need nothing of it could be given back.
  int steps_until_free_ = 0;
  bool free_one_waits_ = false;  // and that step's backward is to come
  std::int64_t plan_ns_ = 0;
  HostInstant step_began_;
  std::int64_t reserved_before_ = 0;
  bool told_of_holes_ = false;
  bool reached_cap_ = false;          // in the step before
  bool leaves_doubt_ = false;         // the plan may fit and the allocator's holes beside it not
  bool course_leaves_doubt_ = false;  // the step may need more than its plan predicts
  bool called_others_ = false;        // layers that its plan is not for
  std::int64_t in_use_before_ = 0;    // as the step began
  HeldPredictions held_predictions_;
  RestHabit rest_;
  std::int64_t passed_by_ = -1;  // layer calls of a step that rests; below 0: its forward goes on
  std::int64_t revocations_before_ = 0;
  std::int64_t overruns_before_ = 0;
  std::int64_t refusals_before_ = 0;  // and those that only pudica saw
  bool told_of_refusals_ = false;
  bool call_failed_ = false;
  std::exception_ptr interruption_;  // of a trial; the cause
  // The user's outputs of a step are freed in the next one's forward (`out = model(x)`): its plan
  // need not count them.
  bool held_returns_ = false;
  GapHabit gap_;
  CacheComfort comfort_;
  SharedBackward shared_backward_;
  std::int32_t next_layer_ = 0;  // of frames: those of forwards that wait have other numbers
  StepClaim claim_;              // true: another model's step on this device began meanwhile
  CutShort cut_short_;
  std::uint64_t found_residents_ = 0;  // the latest step in which there were others
};

template <typename F>
bool Session::contain(const char* where, F&& call) noexcept {
  try {
    call();
    return true;
  } catch (const Interruption& interruption) {
    interruption_ = interruption.cause();
  } catch (const std::exception& error) {
    fail(where, error.what());
  } catch (...) {
    fail(where, "an exception of unknown type");
  }
  return false;
}

}  // namespace pudica::hooks
