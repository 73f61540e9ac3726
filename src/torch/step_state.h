// StepState: what frames and gradient hooks write during a step.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pudica/plan.h"
#include "torch/frame.h"
#include "torch/output_watch.h"
#include "torch/recorder.h"
#include "torch/registry.h"
#include "torch/work_clock.h"

namespace pudica::hooks {

// What is noted of one recorded forward until its backward is over. Layers by their place in it.
struct ForwardNotes {
  std::uint64_t step = 0;
  std::int32_t first_layer = 0;  // as frames number it
  std::int32_t layers = 0;       // of a forward that is over
  std::set<std::pair<MarkKind, std::int32_t>> borders;
  std::int32_t latest_border = -1;  // a layer's
  bool handed_over = false;
  OutputWatch outputs;
  // What a layer made, by where it is: the recorder's watch.
  std::map<std::pair<std::int32_t, const void*>, std::size_t> watches;
  std::set<std::int32_t> revoked;
  std::map<std::int32_t, WorkTime> recovery;  // by tape or by running the layer again
  std::map<std::int32_t, WorkInstant> recompute_began;

  // As the backward comes to it. False: it was there before, or it is none.
  bool is_first_border(MarkKind kind, std::int32_t layer);
};

// Shared with frames and hooks, so that it outlives the session. Thread-safe.
class StepState final : public FrameObserver, public std::enable_shared_from_this<StepState> {
 public:
  void before_recompute(std::int32_t layer) noexcept override;
  void after_recompute(std::int32_t layer) noexcept override;
  void recovered(std::int32_t layer, const WorkTime& time) noexcept override;
  void revoked(std::int32_t layer) noexcept override;
  void recompute_deviated(std::int32_t layer, std::uint16_t layer_class,
                          const std::string& what) noexcept override;
  void trial_passed(std::uint16_t layer_class, const BufferPlaces& changed,
                    bool keeps_state) noexcept override;
  void trial_due(std::uint16_t layer_class, const BufferPlaces& changed) noexcept override;

  // Before a recompute, as much room is made in `registry` as the plan foresees.
  explicit StepState(std::shared_ptr<Registry> registry)
      : recorder_(kEventCapacity), registry_(std::move(registry)) {}

  // Starts counting a new step; marks go to the recorder only if `recording`, and read `timer`, as
  // recomputes do. The backward of the last `waiting` steps is still to come: their layers are
  // numbered below `first_layer`.
  struct Begin {
    bool recording = false;
    PlanPtr plan;
    WorkTimer timer;
    std::uint64_t waiting = 0;
    std::int32_t first_layer = 0;
  };
  void begin(std::uint64_t step, Begin with);
  // What the step turned out to be: from its first layer on.
  void settle(PlanPtr plan, bool recording, WorkTimer timer);
  void mark(MarkKind kind, std::int32_t layer);
  // What a layer is given and what it makes, in a recorded step.
  void called(std::int32_t layer, const std::vector<at::Tensor>& inputs, at::Device device);
  void made(std::int32_t layer, const std::vector<at::Tensor>& outputs, at::Device device);
  // When that was freed.
  [[nodiscard]] OutputWatch outputs() const;
  // Events that freed what the layer made and the next one did not read.
  [[nodiscard]] std::vector<std::int64_t> unread_frees(std::int32_t layer) const;
  // A layer of this step's has a border. Where none has (frozen layers), the backward is that of
  // those before it alone.
  void expects_border() { expects_border_.store(true); }
  // From a gradient hook of the step `step`, on whatever thread runs the backward.
  void border(std::uint64_t step, MarkKind kind, std::int32_t layer);
  // Likewise, where the backward of all that the step's forward made is over.
  void hands_over(std::uint64_t step);
  void end();
  // In this step a call has another place in the plan than in the step.
  void placed(std::int32_t layer, std::size_t place);
  // Of frames of this step: what frames call their layer, from its place in the step.
  [[nodiscard]] std::int32_t frame_layer(std::size_t ordinal) const {
    return first_layer_.load() + static_cast<std::int32_t>(ordinal);
  }

  [[nodiscard]] bool is_quarantined(std::uint16_t layer_class) const;
  // A call of the class was run again and reproduced itself; where it keeps state, in two steps.
  [[nodiscard]] bool is_proven(std::uint16_t layer_class) const;
  [[nodiscard]] BufferHabit buffer_habit(std::uint16_t layer_class) const;
  // In this step. Layers by their place in the step here, and in marks.
  [[nodiscard]] bool was_revoked(std::int32_t layer) const;
  [[nodiscard]] std::int64_t recomputes() const { return recomputes_.load(); }
  // By tape or by running the layer again, in this step.
  [[nodiscard]] WorkTime recovery(std::int32_t layer) const;
  // Of a forward that waited as this step began, and was recorded; nullopt: there is none.
  [[nodiscard]] std::optional<ForwardNotes> waited(std::uint64_t step) const;
  [[nodiscard]] bool backward_repeated() const { return backward_repeated_.load(); }
  Recorder& recorder() { return recorder_; }

 private:
  static constexpr std::size_t kEventCapacity = std::size_t{1} << 18U;
  static constexpr std::size_t kMostWaiting = 8;

  void begin_backward();
  void waited_border(std::uint64_t step, MarkKind kind, std::int32_t layer);
  // Of the layer that frames call so, with its place in its forward; null: nothing is noted of it.
  ForwardNotes* notes_of(std::int32_t& layer);
  // Of marks in the step under way: how many steps before it.
  [[nodiscard]] std::int32_t steps_before(const ForwardNotes& notes) const {
    return static_cast<std::int32_t>(step_.load() - notes.step);
  }
  void end_layer();

  Recorder recorder_;
  std::shared_ptr<Registry> registry_;
  PlanPtr plan_;  // guarded by mutex_
  std::atomic<bool> recording_{false};
  std::atomic<std::uint64_t> step_{0};
  std::atomic<std::uint64_t> oldest_waiting_{0};  // step; this one where none waits
  std::atomic<std::int32_t> first_layer_{0};
  std::atomic<std::int64_t> recomputes_{0};
  std::atomic<bool> expects_border_{false};
  std::atomic<bool> backward_begun_{false};
  std::atomic<bool> backward_ended_{false};
  std::atomic<bool> handed_over_{false};
  std::atomic<bool> backward_repeated_{false};
  mutable std::mutex mutex_;
  ForwardNotes own_;                     // of this step; guarded by mutex_
  std::vector<ForwardNotes> waiting_;    // oldest first; likewise
  std::set<std::uint16_t> quarantined_;  // guarded by mutex_
  struct Proof {
    int passes = 0;
    std::uint64_t step = 0;  // of the latest
    bool keeps_state = false;
  };
  std::map<std::uint16_t, Proof> proofs_;                   // by class; guarded by mutex_
  std::map<std::uint16_t, BufferPlaces> changing_buffers_;  // likewise
  WorkTimer timer_;                                         // guarded by mutex_
  std::map<std::int32_t, std::size_t> places_;              // guarded by mutex_
  std::atomic<bool> any_quarantined_{false};
};

}  // namespace pudica::hooks
