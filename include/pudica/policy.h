// Policy: the rule that turns a shape key into a plan, and learns from what the step did.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pudica/bytes.h"
#include "pudica/eviction.h"
#include "pudica/layer_profile.h"
#include "pudica/mode.h"
#include "pudica/plan.h"
#include "pudica/result.h"
#include "pudica/shape_key.h"

namespace pudica {

// The layers of a step in execution order, as the hook layer sees them.
struct StepStructure {
  struct Layer {
    std::uint16_t layer_class = 0;
    std::uint8_t variant = 0;  // bits of SegmentKey: where in its class it stands, kNoInputGradient
    // No segment with the layer before it: it reads no output of that one, as one of parallel
    // experts, or that one can be run again only in its own backward.
    bool apart = false;
    bool operator==(const Layer&) const = default;
  };
  // The selective modes of a class, as the hook layer found them.
  struct Menu {
    static constexpr std::uint64_t kNone = 1;  // searched for, and there is none
    // Equal menus of equal classes have equal ids, in every process; 0: not known yet.
    std::uint64_t id = 0;
    std::vector<std::string> steps;  // selective:0, selective:1, ... in words
    // What a step is reckoned to do before it ran, told by the call in which the menu was found.
    struct Promise {
      std::int64_t freed_bytes = 0;  // so many less are held than where the layer is kept
      double work_share = 1;         // of the forward's work that is done again; no clock is asked
      bool operator==(const Promise&) const = default;
    };
    std::vector<Promise> promises;  // by step, at `shape`; empty: not told
    ShapeKey shape;                 // of the step in which the menu was found
    // Shapes at which layers of the class ran other operators than the menu is for: none of its
    // modes can run there. The latest ones.
    std::vector<ShapeKey> not_at;
    bool operator==(const Menu&) const = default;
  };
  std::vector<Layer> layers;
  std::vector<std::string> class_names;  // by layer_class
  std::vector<Menu> menus;               // by layer_class; may be shorter: no menu
  bool operator==(const StepStructure&) const = default;
  // The same layers with the same menus, whatever the runs that told them have seen of those.
  [[nodiscard]] bool is_alike(const StepStructure& other) const {
    return layers == other.layers && class_names == other.class_names &&
           std::ranges::equal(menus, other.menus, {}, &Menu::id, &Menu::id);
  }
};

// What is known when a step begins.
struct StepContext {
  ShapeKey shape;
  Bytes base_bytes{0};             // live when the step begins, returning bytes aside
  Bytes budget_bytes{0};           // the most that may be in use at once
  bool gradients_present = false;  // accumulation: .grad exists already
  // Live beside base_bytes until the forward returns: outputs of the step before, which the user's
  // variables let go when the new ones take their place.
  Bytes returning_bytes{0};
  // Forwards that share a backward (contrastive training), each a step of its own: those before
  // this one whose backward is still to come, held in base_bytes, and those expected to follow.
  std::int32_t waiting_forwards = 0;
  std::int32_t following_forwards = 0;
  bool forwards_are_sure = false;  // the latest backwards agree on how many follow
  std::uint64_t step = 0;          // counted by the handle, from 1; 0: not told
  // Of the user's budget, beside budget_bytes: what a caching allocator (CUDA) takes for itself.
  Bytes allocator_bytes{0};
  // Weights that an earlier forward cast under the same autocast are still cast.
  bool casts_present = false;

  [[nodiscard]] bool shares_backward() const {
    return waiting_forwards > 0 || following_forwards > 0;
  }
};

// What a policy wants of a step.
struct StepDecision {
  PlanPtr plan;
  bool record = false;  // measure every segment of this step
  // Steps of other layers may come: replan() is asked when the first of them does.
  bool may_change = false;
};

struct SegmentObservation {
  SegmentKey key;
  std::int32_t layer = -1;  // index in execution order; -1 where it belongs to no layer
  SegmentSample sample;
  // Of kBackward and kHead where the layer before let go of its output: the sample as it would have
  // been had that layer held it. Of kForward and kGap where outputs that nobody reads, and that
  // the layers before do not hold, were still there: as it would have been without.
  std::optional<SegmentSample> behind_holder;
  std::int64_t held_output_bytes = 0;  // of kBackward: what the layer itself held of its output
  // Of kForward: what the layer made beside what it hands on, and the head freed; of kHead the sum
  // of all, which its own sample is without. nullopt: not known.
  std::optional<std::int64_t> released_bytes;
};

// What running a layer again took: the mean over the layers of a class that ran the mode.
struct RecomputeTime {
  std::uint16_t layer_class = 0;
  Mode mode;
  double seconds = 0;          // > 0
  double forward_seconds = 0;  // what running these layers took the first time; 0: not known
};

// What running a layer forward took: the mean over the layers of a class.
struct ForwardTime {
  std::uint16_t layer_class = 0;
  double seconds = 0;  // > 0
};

// What a segment of an earlier step took, on a device that works on its own: it is known only when
// the device has come there.
struct SegmentTime {
  SegmentKey key;
  ShapeKey shape;
  double seconds = 0;      // >= 0; one layer's
  std::uint64_t step = 0;  // as its StepContext had it
};

// Of a device whose allocator caches (CUDA): the most that it had in blocks and reserved from the
// device within a step, and what it could not have given back beyond the bytes in use.
struct AllocatorPeaks {
  Bytes active_bytes{0};
  Bytes reserved_bytes{0};
  Bytes gap_bytes{0};

  bool operator==(const AllocatorPeaks&) const = default;
};

// A recorded forward that waited, and what the backward that came for it showed of its own layers.
struct WaitedForward {
  StepContext context;  // of the step that ended with its forward
  PlanPtr plan;
  std::vector<ForwardTime> forwards;
  std::vector<SegmentObservation> segments;
};

// What a step did.
struct StepOutcome {
  StepContext context;
  PlanPtr plan;
  Bytes peak_bytes{0};  // measured, absolute
  double seconds = 0;
  std::int64_t revocations = 0;
  bool overrun = false;
  bool failed = false;    // the step did not end (exception); its measurements are partial
  bool rested = false;    // its layers, those that the plan is for, were passed by
  bool ran_free = false;  // some layers were kept, and all that were ran without hooks
  // Layers were called that the plan is not for, in their places: its peak says nothing of them.
  bool other_layers = false;
  // Its backward is still to come, with that of forwards behind it: it was no more than its
  // forward.
  bool waits = false;
  // Whether it is what its plan was to be for.
  [[nodiscard]] bool took_its_course() const {
    return waits == (context.following_forwards > 0) && !other_layers && !repeated_backward;
  }
  // Empty unless recorded. Seconds that are not known yet are 0: learn_times() tells them.
  std::vector<SegmentObservation> segments;
  // Of forwards before it, oldest first, where both they and this step were recorded.
  std::vector<WaitedForward> waited;
  std::vector<RecomputeTime> recomputes;  // empty where recorded: segments have them
  std::int64_t layer_calls = 0;
  std::int64_t recomputed_layers = 0;  // layer calls run again, by plan or after a revocation
  // The backward went through the layers more than once: the step's peak says nothing of the plan,
  // and where it was to be recorded it was cut into no segments.
  bool repeated_backward = false;
  // For menus, or some layers ran other operators than theirs are for: not all of the plan ran, and
  // the peak may be its own.
  bool searched = false;
  Bytes host_peak_bytes{0};                 // what layers of mode `offload` held in host memory
  std::vector<ForwardTime> forwards;        // of calls whose forward was nothing else
  std::optional<AllocatorPeaks> allocator;  // nullopt: it does not cache
};

// Not thread-safe: one owner thread. Never throws for any sequence of valid calls.
class Policy {
 public:
  virtual ~Policy() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  // Before the first step where it is known, and whenever the layers of a step changed.
  virtual void on_structure(const StepStructure& structure) = 0;
  // Whether plans may hold selective modes: then the hook layer finds the menus of classes.
  [[nodiscard]] virtual bool wants_menus() const { return false; }
  // Layers of mode `full` hold what these operators made, which then do not run again: PyTorch's
  // selective checkpointing. By name as MenuRules has them ("addmm", "_scaled_dot_product_*"); the
  // same for as long as the policy lives.
  [[nodiscard]] virtual std::vector<std::string> keep_operators() const { return {}; }
  // Kept layers with tapes give up single tensors by this rule, again and again, before any of them
  // is given up as a whole. nullopt: each once, the cheapest first. The same for as long as the
  // policy lives.
  [[nodiscard]] virtual std::optional<Eviction> eviction() const { return std::nullopt; }
  virtual StepDecision begin_step(const StepContext& context) = 0;
  // Where the decision may change: the step's first layer is of this class, in the same context.
  // nullopt: the decision stays. What it decides on recording holds from the step's begin on.
  virtual std::optional<StepDecision> replan(const StepContext& /*context*/,
                                             std::uint16_t /*first_class*/) {
    return std::nullopt;
  }
  virtual void end_step(const StepOutcome& outcome) = 0;
  // Between steps, and not for every one: times of segments that end_step() told without.
  virtual void learn_times(const std::vector<SegmentTime>& /*times*/) {}
};

}  // namespace pudica
