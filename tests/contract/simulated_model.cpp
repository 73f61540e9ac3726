#include "contract/simulated_model.h"

#include <algorithm>

namespace pudica {
namespace {

constexpr double kSecondsPerByte = 1e-9;

struct Sizes {
  std::int64_t boundary;  // one activation of batch x length x hidden
  std::int64_t saved;
};

Sizes sizes_of(const SimulatedModel& model, const ShapeKey& shape) {
  const std::int64_t batch = shape.size() > 0 ? shape[0] : 1;
  const std::int64_t length = shape.size() > 1 ? shape[1] : 1;
  const std::int64_t boundary = 4 * batch * length * model.hidden;
  return {boundary, 12 * boundary + 4 * batch * model.heads * length * length};
}

// Puts segments one after the other and follows what is live.
class Walk {
 public:
  Walk(StepOutcome& outcome, bool record) : outcome_(outcome), record_(record) {}

  void segment(SegmentKey key, std::int32_t layer, std::int64_t net, std::int64_t peak) {
    highest_ = std::max(highest_, live_ + std::max<std::int64_t>(peak, 0));
    live_ += net;
    add(key, layer, net, peak);
  }
  // A part of the backward segment that follows: changes nothing by itself.
  void recompute(SegmentKey key, std::int32_t layer, std::int64_t saved) {
    add(key, layer, saved, saved);
  }
  [[nodiscard]] std::int64_t highest() const { return highest_; }

 private:
  void add(SegmentKey key, std::int32_t layer, std::int64_t net, std::int64_t peak) {
    const double seconds = kSecondsPerByte * static_cast<double>(std::max(net, peak));
    if (key.kind != SegmentKind::kRecompute) outcome_.seconds += seconds;
    if (!record_) return;
    SegmentSample sample;
    sample.net_bytes = net;
    sample.peak_bytes = std::max({net, peak, std::int64_t{0}});
    sample.deltas = {sample.peak_bytes, net - sample.peak_bytes};
    sample.seconds = seconds;
    outcome_.segments.push_back({key, layer, sample});
  }

  StepOutcome& outcome_;
  bool record_;
  std::int64_t live_ = 0;
  std::int64_t highest_ = 0;
};

SegmentKey layer_key(SegmentKind kind, const StepStructure::Layer& layer, Mode mode) {
  SegmentKey key;
  key.kind = kind;
  key.layer_class = layer.layer_class;
  key.mode = mode;
  key.variant = layer.variant;
  return key;
}

SegmentKey step_key(SegmentKind kind) {
  SegmentKey key;
  key.kind = kind;
  return key;
}

}  // namespace

StepStructure SimulatedModel::structure() const {
  StepStructure structure;
  structure.layers.resize(layers);
  if (!structure.layers.empty()) structure.layers.back().variant = SegmentKey::kLastOfClass;
  structure.class_names = {"SimulatedBlock"};
  return structure;
}

std::int64_t SimulatedModel::saved_bytes(const ShapeKey& shape) const {
  return sizes_of(*this, shape).saved;
}

StepCosts SimulatedModel::costs(const ShapeKey& shape) const {
  const auto [boundary, saved] = sizes_of(*this, shape);
  LayerModeCosts keep;
  keep.mode = Mode::keep();
  keep.forward_net_bytes = boundary + saved;
  keep.forward_peak_bytes = boundary + saved + boundary / 2;
  keep.backward_peak_bytes = 2 * boundary;
  LayerModeCosts full;
  full.mode = Mode::full();
  full.forward_net_bytes = boundary;
  full.forward_peak_bytes = keep.forward_peak_bytes;
  full.backward_peak_bytes = saved + 2 * boundary;
  full.extra_seconds = kSecondsPerByte * static_cast<double>(saved);

  StepCosts costs;
  costs.layers.resize(layers);
  for (LayerCosts& layer : costs.layers) layer.modes = {keep, full};
  if (!costs.layers.empty()) {
    costs.layers[0].gap_net_bytes = boundary;
    costs.layers[0].gap_peak_bytes = 2 * boundary;
  }
  costs.head_net_bytes = boundary;
  costs.head_peak_bytes = 3 * boundary;
  costs.epilogue_net_bytes = -2 * boundary;
  costs.epilogue_peak_bytes = boundary;
  costs.optimizer_peak_bytes = 4096;
  return costs;
}

StepOutcome SimulatedModel::run(const StepContext& context, const StepDecision& decision) const {
  StepOutcome outcome;
  outcome.context = context;
  outcome.plan = decision.plan;
  const StepCosts step = costs(context.shape);
  const StepStructure known = structure();
  const std::int64_t saved = saved_bytes(context.shape);
  const Plan& plan = *decision.plan;
  const auto costs_of = [&](std::size_t layer) -> const LayerModeCosts& {
    const Mode mode = layer < plan.modes.size()                 ? plan.modes[layer]
                      : plan.teach_first_of_class && layer == 0 ? Mode::full()
                                                                : plan.default_mode;
    return step.layers[layer].modes[mode == Mode::keep() ? 0 : 1];
  };

  Walk walk(outcome, decision.record);
  for (std::size_t i = 0; i < layers; ++i) {
    if (i == 0) {
      walk.segment(step_key(SegmentKind::kGap), -1, step.layers[0].gap_net_bytes,
                   step.layers[0].gap_peak_bytes);
    }
    const LayerModeCosts& mode = costs_of(i);
    walk.segment(layer_key(SegmentKind::kForward, known.layers[i], mode.mode),
                 static_cast<std::int32_t>(i), mode.forward_net_bytes, mode.forward_peak_bytes);
  }
  walk.segment(step_key(SegmentKind::kHead), -1, step.head_net_bytes, step.head_peak_bytes);
  for (std::size_t i = layers; i-- > 0;) {
    const LayerModeCosts& mode = costs_of(i);
    const auto index = static_cast<std::int32_t>(i);
    if (mode.mode == Mode::full()) {
      walk.recompute(layer_key(SegmentKind::kRecompute, known.layers[i], mode.mode), index, saved);
    }
    walk.segment(layer_key(SegmentKind::kBackward, known.layers[i], mode.mode), index,
                 -mode.forward_net_bytes, mode.backward_peak_bytes);
  }
  walk.segment(step_key(SegmentKind::kEpilogue), -1, step.epilogue_net_bytes,
               step.epilogue_peak_bytes);
  walk.segment(step_key(SegmentKind::kOptimizer), -1, 0, step.optimizer_peak_bytes);
  outcome.peak_bytes = context.base_bytes + Bytes(walk.highest());
  outcome.overrun = outcome.peak_bytes > context.budget_bytes;
  return outcome;
}

}  // namespace pudica
