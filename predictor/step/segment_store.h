// SegmentStore: the predictor with what must be known around it to read recorded steps rightly.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "predictor/step/prediction_memo.h"
#include "predictor/times/relative_times.h"
#include "pudica/policy.h"
#include "pudica/predictor.h"
#include "pudica/result.h"
#include "pudica/step_learner.h"

namespace pudica {

// The key under which a segment is known: some differ in what they need not.
SegmentKey normalized(SegmentKey key);

// The segment behind a layer that lets go of its output (SegmentKey::kEarlyFree).
SegmentKey early_free(SegmentKey key);
// What layers of a class hold of their output in a mode.
SegmentKey held_output(std::uint16_t layer_class, Mode mode);

// What layers of a class that ran so left for the head to free.
SegmentKey released(std::uint16_t layer_class, Mode mode, std::uint8_t variant);

// What a forward and its backward leave together, as it was measured where both were.
class LeftTogether {
 public:
  void add(const ShapeKey& shape, std::int64_t forward_net_bytes, std::int64_t left_bytes);

  // The same at every shape, of which there are enough, with forwards that differ; a dimension that
  // never varied is none of which anybody knows whether it matters.
  [[nodiscard]] std::optional<std::int64_t> everywhere(const ShapeKey& asked) const;
  // Behind a forward that leaves so much: by the line through the calls whose forwards left least
  // and most, if it rises, and no faster than what those left. nullopt: fewer than two calls, or
  // one between them that is `noticeable_bytes` off.
  [[nodiscard]] std::optional<std::int64_t> behind(std::int64_t forward_net_bytes,
                                                   std::int64_t noticeable_bytes) const;

 private:
  struct Call {
    std::int64_t forward_net_bytes = 0;
    std::int64_t left_bytes = 0;
  };

  std::vector<Call> calls_;  // in ascending order of what forwards left
  ShapeKey shape_;           // of the first
  bool same_ = true;
  std::array<bool, ShapeKey::kMaxDimensions> varied_{};
};

// Not thread-safe: one owner thread.
class SegmentStore {
 public:
  using PredictorFactory = std::function<std::unique_ptr<Predictor>()>;

  explicit SegmentStore(PredictorFactory factory);

  // Gives the predictor the segments of a recorded step, their keys as they are in its kind. The
  // optimizer's sample waits for settle().
  // `forget_above`: segments that deviate by more than this share are forgotten first (drift); 0:
  // none.
  ObserveReport observe(const StepOutcome& outcome, double forget_above);

  // Of a step that was not recorded: of modes that were observed before, the others are passed
  // over.
  void observe_times(const ShapeKey& shape, const std::vector<ForwardTime>& forwards,
                     const std::vector<RecomputeTime>& times);
  // Of segments that were observed before, likewise. All of a step come together.
  void observe_times(const std::vector<SegmentTime>& times);

  // Judges the optimizer's last sample by the base bytes of the step after it. Kept out are a step
  // that left bytes behind (the first one makes the optimizer's state, once) and, under
  // accumulation, a micro-step in which the optimizer did not run.
  void settle(const StepContext& next, std::optional<Bytes> first_base_bytes = std::nullopt);

  // nullopt: nothing is known.
  [[nodiscard]] std::optional<StoredEstimate> predict(const SegmentKey& segment,
                                                      const ShapeKey& shape) const;
  // The same of kForward and kGap: where outputs that nobody reads may still be there, which hangs
  // on the layers before, they are counted.
  [[nodiscard]] std::optional<StoredEstimate> predict_with_unread(const SegmentKey& segment,
                                                                  const ShapeKey& shape) const;
  // The segment with or without casts, as asked, where it was seen so; else as it was.
  [[nodiscard]] SegmentKey as_known(const SegmentKey& segment, bool casts_present) const;
  // Modes with at least one forward sample of this class, ascending.
  [[nodiscard]] const std::vector<Mode>& modes(std::uint16_t layer_class) const;
  // Variants of a layer segment seen with this class and mode, without kGradientsPresent and
  // kCastsPresent.
  [[nodiscard]] const std::vector<std::uint8_t>& variants(std::uint16_t layer_class,
                                                          Mode mode) const;
  // The shape of a segment that was seen at one only.
  [[nodiscard]] std::optional<ShapeKey> only_shape(const SegmentKey& segment) const;
  [[nodiscard]] std::int64_t distinct_shapes(const SegmentKey& segment) const {
    return predictor_->distinct_shapes(segment);
  }
  [[nodiscard]] std::optional<ShapeKey> latest_shape(const SegmentKey& segment) const {
    return predictor_->latest_shape(segment);
  }
  // Looked for once for each version of the predictor: every plan asks.
  [[nodiscard]] const LeftTogether& left_together(const SegmentKey& forward,
                                                  const SegmentKey& backward) const;
  // Bytes that a layer which ran so leaves for the head to free: no more than are sure to be known.
  // nullopt: nothing is known.
  [[nodiscard]] std::optional<std::int64_t> released_bytes(std::uint16_t layer_class, Mode mode,
                                                           std::uint8_t variant,
                                                           const ShapeKey& shape,
                                                           bool casts_present = false) const;
  // Whether a layer holds its output itself; false where nothing is known.
  [[nodiscard]] bool holds_output(std::uint16_t layer_class, Mode mode) const {
    return predictor_->distinct_shapes(held_output(layer_class, mode)) > 0;
  }
  // Classes that were run with `keep` although the plan said `full`.
  [[nodiscard]] bool refuses_full(std::uint16_t layer_class) const {
    return refusing_.contains(layer_class);
  }

  void forget_class(std::uint16_t layer_class);
  // What its layers need in the backward.
  void forget_backwards(std::uint16_t layer_class);
  // The selective modes of a class: its menu changed.
  void forget_selective(std::uint16_t layer_class);
  // Gaps of a kind of step, of this index and above: the layers around them changed.
  void forget_gaps_from(std::uint8_t step_kind, std::size_t index);
  // All that stands between the layers of a kind of step.
  void forget_kind(std::uint8_t step_kind);

  [[nodiscard]] const Predictor& predictor() const { return *predictor_; }
  // Rises whenever a prediction may have changed.
  [[nodiscard]] std::uint64_t version() const {
    return predictor_->version() + relative_times_.version();
  }

  // Lines of text, and back into a fresh store. Errors: kCorrupt.
  [[nodiscard]] std::string serialize() const;
  Result<void> restore(const std::string& text);

 private:
  // An optimizer's sample that waits for the next step.
  struct PendingOptimizer {
    SegmentKey key;
    StepContext context;
    SegmentSample sample;
  };

  [[nodiscard]] std::optional<StoredEstimate> predicted(const SegmentKey& segment,
                                                        const ShapeKey& shape) const;
  void note_refusal(const SegmentObservation& item, const Plan* plan);
  // Times (segment_times.cpp).
  struct Together;
  void observe_times_of(const StepOutcome& outcome);
  void observe_together(const SegmentKey& key, const ShapeKey& shape, const Together& taken);
  void take(const SegmentKey& key, const ShapeKey& shape, const SegmentSample& sample,
            double forget_above, ObserveReport& report);
  void take_observation(const SegmentKey& key, const SegmentObservation& item,
                        const ShapeKey& shape, double forget_above, ObserveReport& report);
  Result<void> restore_times(std::istringstream& words, std::istringstream& in, std::size_t most);
  bool restore_line(const std::string& what, std::istringstream& words);
  [[nodiscard]] std::vector<SegmentKey> empty_gaps(const StepOutcome& outcome) const;
  [[nodiscard]] bool shows_that_first_was_once(const SegmentKey& key, const ShapeKey& shape,
                                               const SegmentSample& sample) const;
  double deviation(const SegmentKey& key, const ShapeKey& shape, const SegmentSample& sample) const;
  void forget(const SegmentKey& key);
  void give(const SegmentKey& key, const ShapeKey& shape, const SegmentSample& sample);
  void refresh_index();

  PredictorFactory factory_;
  std::unique_ptr<Predictor> predictor_;
  RelativeTimes relative_times_;
  std::map<SegmentKey, ShapeKey> only_shape_;  // of segments seen at one shape
  std::set<SegmentKey> of_first_step_;         // of the process, and not forgotten since
  std::set<std::uint16_t> refusing_;
  std::optional<PendingOptimizer> pending_optimizer_;
  Bytes own_base_bytes_{0};              // of the latest step without what forwards before it hold
  std::int32_t skipped_optimizers_ = 0;  // in a row
  bool accumulates_ = false;             // some step began with gradients present
  mutable PredictionMemo memo_;          // of predict(), since anything was learned
  // left_together() by forward and backward, of one version of the predictor.
  mutable std::map<std::pair<SegmentKey, SegmentKey>, LeftTogether> left_;
  mutable std::uint64_t left_version_ = 0;
  // By class, rebuilt when a segment appears or goes.
  std::map<std::uint16_t, std::vector<Mode>> modes_;
  std::map<std::pair<std::uint16_t, Mode>, std::vector<std::uint8_t>> variants_;
};

}  // namespace pudica
