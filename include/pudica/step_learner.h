// StepLearner: what a step costs, learned online from steps that were measured. The one owner of
// that knowledge: controllers, tools and profilers ask it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pudica/policy.h"
#include "pudica/predictor.h"
#include "pudica/result.h"
#include "pudica/step_costs.h"

namespace pudica {

// Differences below this are rounding of allocators, not another need.
inline constexpr std::int64_t kNoticeableBytes = 4096;

// Of which step the costs are asked.
struct CostsRequest {
  ShapeKey shape;
  std::uint8_t step_kind = 0;  // that the structure is of
  bool gradients_present = false;
  bool casts_present = false;  // StepContext
  // Others follow it before its backward. Where no step of its kind ever had one alone, its head is
  // what comes until the next one begins.
  bool waits = false;
  std::int64_t returning_bytes = 0;
  std::int64_t state_bytes = 0;      // that the optimizer will make in its first step
  std::span<const Mode::Kind> menu;  // kinds on offer, as is_on_menu() reads it
  // Layers from the first on may have `offload` until what they put away fills so many bytes.
  std::int64_t host_bytes = 0;
  // Revocation keeps kept calls from being measured: what one of them says counts for less than
  // what is read off recomputed ones.
  bool derives_kept = false;
  // Leave out modes of which nothing is known instead of failing; keep or full must be known.
  bool lenient = false;
  // Modes beyond `keep` and `full` that count as unknown, by class; empty: none.
  std::function<bool(std::uint16_t layer_class, Mode mode)> withholds;
};

// What a recorded step taught.
struct ObserveReport {
  std::int64_t observed = 0;   // samples given to the predictor
  std::int64_t forgotten = 0;  // segments forgotten because they no longer match
};

// An estimate and whether it rests on enough: at least two distinct shapes, or the very one asked.
struct StoredEstimate {
  SegmentEstimate estimate;
  bool fit = false;
};

class SegmentStore;

// Layers are pooled by class; what is known of one stands in for the others. Steps are told in
// their order: settle() as each begins, then observe() if it was recorded, else observe_times().
// Not thread-safe: one owner thread.
class StepLearner {
 public:
  using PredictorFactory = std::function<std::unique_ptr<Predictor>()>;

  explicit StepLearner(const PredictorOptions& options);
  explicit StepLearner(PredictorFactory factory);
  ~StepLearner();
  StepLearner(StepLearner&& other) noexcept;
  StepLearner& operator=(StepLearner&& other) noexcept;

  // Judges what the optimizer of the step before took by the base bytes that this one begins with;
  // `first_base_bytes`: those of the first forward that shares its backward, this one or before.
  // nullopt: as far as this learner was told of that one.
  void settle(const StepContext& next, std::optional<Bytes> first_base_bytes = std::nullopt);
  // Learns a recorded step. `forget_above`: segments that deviate by more than this share are
  // forgotten first (drift); 0: none.
  ObserveReport observe(const StepOutcome& outcome, double forget_above = 0);
  // Times of modes that were observed before, of a step that was not recorded.
  void observe_times(const ShapeKey& shape, const std::vector<ForwardTime>& forwards,
                     const std::vector<RecomputeTime>& recomputes);
  // Of segments likewise. All of a step come together.
  void observe_times(const std::vector<SegmentTime>& times);

  // What a step over these layers needs, to the byte where `identified`, with how the layers'
  // costs are put together from their segments (v: class and variant, m: a mode):
  //   residue(v)     = forward_net(keep) + backward_net(keep) - released(v, keep)
  //   released(v, m) as measured, else max(0, forward_net(m) + backward_net(m) - residue(v))
  // A mode unknown for a variant is taken from another variant of the class: its backward peak
  // rises by the residue that this variant has beyond the other's. The backward of a gap before a
  // layer is that layer's: its residue and its highest point in every mode. A selective mode is
  // left out until it is as well known as `keep` and `full` are. A backward of `keep` that was
  // never seen is that of `full` less what the recompute allocates.
  // Errors: kUnavailable, naming the first segment that is unknown.
  [[nodiscard]] Result<StepModel> costs(const StepStructure& structure,
                                        const CostsRequest& request) const;
  // One segment; nullopt: nothing is known.
  [[nodiscard]] std::optional<StoredEstimate> segment(const SegmentKey& key,
                                                      const ShapeKey& shape) const;
  // Distinct shapes at which a mode was measured, forward and backward, on layers of the class that
  // stand where `variant` says (SegmentKey::group_of).
  [[nodiscard]] std::int64_t shapes_measured(std::uint16_t layer_class, std::uint8_t variant,
                                             Mode mode, bool gradients_present) const;
  // Whether layers of the class were run with `keep` although the plan said `full`.
  [[nodiscard]] bool refuses_full(std::uint16_t layer_class) const;
  [[nodiscard]] std::vector<LearnedQuantity> describe() const;
  // Rises whenever a prediction may have changed.
  [[nodiscard]] std::uint64_t version() const;

  void forget_class(std::uint16_t layer_class);
  // What its layers need in the backward.
  void forget_backwards(std::uint16_t layer_class);
  // The selective modes of a class: its menu changed.
  void forget_selective(std::uint16_t layer_class);
  // Gaps of a kind of step, of this index and above: the layers around them changed.
  void forget_gaps_from(std::uint8_t step_kind, std::size_t index);
  // All that stands between the layers of a kind of step.
  void forget_kind(std::uint8_t step_kind);
  // Everything: as newly made.
  void forget();

  // Lines of text, and back; in place of what is known. Errors: kCorrupt, nothing is changed then.
  [[nodiscard]] std::string serialize() const;
  Result<void> restore(const std::string& text);

 private:
  void replace(std::unique_ptr<SegmentStore> store);

  PredictorFactory factory_;
  std::unique_ptr<SegmentStore> store_;
  std::uint64_t versions_before_ = 0;  // of stores that were replaced
};

}  // namespace pudica
