#include "support/synthetic_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "base/layer_order.h"

namespace pudica::testing {
namespace {

constexpr std::int64_t kRngBytes = 5056;  // state a `full` layer saves

std::int64_t net_of(const std::vector<std::int64_t>& deltas) {
  return std::accumulate(deltas.begin(), deltas.end(), std::int64_t{0});
}

std::int64_t peak_of(const std::vector<std::int64_t>& deltas) {
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (const std::int64_t delta : deltas) {
    live += delta;
    peak = std::max(peak, live);
  }
  return peak;
}

void append(std::vector<std::int64_t>& deltas, const std::vector<std::int64_t>& more) {
  deltas.insert(deltas.end(), more.begin(), more.end());
}

void append_freed(std::vector<std::int64_t>& deltas, const std::vector<std::int64_t>& allocated) {
  for (const std::int64_t bytes : allocated) deltas.push_back(-bytes);
}

}  // namespace

// A layer between its forward and its backward.
struct SyntheticModel::Frame {
  Mode mode;
  bool joined = false;  // one with the layer before it
  bool revoked = false;
  bool began = false;
  std::int64_t held_bytes = 0;  // what a revocation frees
  bool spoiled = false;         // what it took tells nothing of its mode
};

// One step in progress.
struct SyntheticModel::Run {
  StepOutcome outcome;
  bool record = false;
  std::int64_t live = 0;
  std::int64_t peak = 0;
  std::vector<Frame> frames;

  // Part of a joint segment: nothing of it is recorded, as in the hook layer.
  [[nodiscard]] bool is_joint(std::size_t i) const {
    return frames[i].joined || (i + 1 < frames.size() && frames[i + 1].joined);
  }
  [[nodiscard]] std::size_t first_of_joint(std::size_t i) const {
    while (frames[i].joined) --i;
    return i;
  }

  // Revokes until `needed` bytes fit. True: something was revoked. `in_use` is spared.
  bool make_room(std::int64_t needed, int in_use) {
    const std::int64_t budget = outcome.context.budget_bytes.count();
    bool revoked = false;
    if (budget <= 0) return false;
    for (int i = 0; i < static_cast<int>(frames.size()) && live + needed > budget; ++i) {
      Frame& frame = frames[static_cast<std::size_t>(i)];
      if (!frame.began) break;
      const bool holds = frame.mode == Mode::keep() || frame.mode.kind == Mode::Kind::kSelective;
      if (i == in_use || frame.revoked || !holds) continue;
      frame.revoked = true;
      live -= frame.held_bytes;
      ++outcome.revocations;
      revoked = true;
    }
    if (live + needed > budget) outcome.overrun = true;
    return revoked;
  }

  void play(const SegmentKey& key, int layer, const Deltas& deltas, double seconds, int in_use) {
    const bool disturbed = make_room(peak_of(deltas), in_use);
    peak = std::max(peak, live + peak_of(deltas));
    live += net_of(deltas);
    if (!record || disturbed) return;
    outcome.segments.push_back({key, layer, {deltas, net_of(deltas), peak_of(deltas), seconds}});
  }
};

StepStructure SyntheticModel::structure() const {
  StepStructure out;
  for (int kind = 0; kind <= last_class(); kind += 2) {
    out.class_names.emplace_back("encoder");
    out.class_names.emplace_back("decoder");
  }
  std::vector<std::uint16_t> order;
  for (int i = 0; i < layer_count(); ++i) order.push_back(class_of(i));
  out.layers = layers_of(order);
  for (int menu = 0; spec_.menu_steps > 0 && menu < last_class() + 2; ++menu) {
    StepStructure::Menu& told = out.menus.emplace_back();
    told.id = static_cast<std::uint64_t>(7 + menu);
    for (int k = 0; k < spec_.menu_steps; ++k) told.steps.push_back("drops some");
    const auto of_class = std::ranges::find(order, static_cast<std::uint16_t>(menu));
    if (of_class != order.end()) add_promises(static_cast<int>(of_class - order.begin()), told);
  }
  return out;
}

void SyntheticModel::add_promises(int layer, StepStructure::Menu& menu) const {
  if (!spec_.promises || first_shape_.size() == 0) return;
  menu.shape = first_shape_;
  for (int k = 0; k < spec_.menu_steps; ++k) {
    const Mode mode = Mode::selective(static_cast<std::uint16_t>(k));
    menu.promises.push_back({net_of(dropped(first_shape_, layer, mode)), share_done_again(mode)});
  }
}

std::int64_t SyntheticModel::unit(const ShapeKey& shape, int layer) const {
  const std::int64_t length = decodes(layer) && shape.size() > 2 ? shape[2] : shape[1];
  return 4 * shape[0] * length * spec_.width;
}

std::int64_t SyntheticModel::parameters() const {
  return (layer_count() + spec_.left_out_layers) * layer_parameters() +
         8 * spec_.vocabulary * spec_.width;
}

SyntheticModel::Deltas SyntheticModel::inventory(const ShapeKey& shape, int layer) const {
  const std::int64_t u = unit(shape, layer);
  const std::int64_t length = decodes(layer) && shape.size() > 2 ? shape[2] : shape[1];
  Deltas out{u, u, u, u, 8 * shape[0] * length, u, 4 * u * spec_.inventory_scale, 4 * u, u};
  if (spec_.heads > 0) out.push_back(4 * spec_.heads * shape[0] * length * length);
  if (decodes(layer)) {
    out.push_back(8 * shape[0] * shape[1] * spec_.width *
                  (1 + spec_.decoder_class));  // cross attention
  }
  return out;
}

SyntheticModel::Deltas SyntheticModel::gap(const ShapeKey& shape, int layer) const {
  if (layer != 0 && layer != spec_.encoder_layers) return {};
  const std::int64_t u = unit(shape, layer);
  return {u, u, 8 * shape[shape.size() - 1], -u};
}

SyntheticModel::Deltas SyntheticModel::forward(const ShapeKey& shape, int layer, Mode mode) const {
  const std::int64_t u = unit(shape, layer);
  const Deltas held = inventory(shape, layer);
  Deltas out;
  if (mode == Mode::full()) out.push_back(kRngBytes);
  if (mode == Mode::full() && spec_.cast_bytes > 0) out.push_back(spec_.cast_bytes);
  out.push_back(2 * u);
  append(out, held);
  out.push_back(-2 * u);
  out.push_back(u);
  if (mode == Mode::full()) append_freed(out, held);
  append_freed(out, dropped(shape, layer, mode));
  return out;
}

SyntheticModel::Deltas SyntheticModel::dropped(const ShapeKey& shape, int layer, Mode mode) const {
  if (mode == Mode::offload()) return inventory(shape, layer);
  if (mode.kind != Mode::Kind::kSelective) return {};
  const Deltas held = inventory(shape, layer);
  constexpr std::size_t kOrder[] = {6, 7, 0, 1};
  Deltas out;
  for (std::size_t i = 0; i <= mode.step; ++i) out.push_back(held[kOrder[i]]);
  return out;
}

double SyntheticModel::extra_seconds(const ShapeKey& shape, int layer, Mode mode) const {
  if (mode == Mode::full()) return forward_seconds(shape, layer);
  if (mode == Mode::offload()) return 0.3 * forward_seconds(shape, layer);
  if (mode.kind != Mode::Kind::kSelective) return 0;
  return share_done_again(mode) * forward_seconds(shape, layer);
}

double SyntheticModel::share_done_again(Mode mode) {
  return 0.05 * (1 + mode.step) * (1 + mode.step);
}

SyntheticModel::Deltas SyntheticModel::recompute(const ShapeKey& shape, int layer) const {
  Deltas out = inventory(shape, layer);
  const std::int64_t u = unit(shape, layer);
  append(out, {2 * u, -2 * u});
  return out;
}

SyntheticModel::Deltas SyntheticModel::backward(const ShapeKey& shape, int layer, Mode mode,
                                                bool gradients) const {
  const std::int64_t u = unit(shape, layer);
  Deltas out;
  if (mode == Mode::full()) out = recompute(shape, layer);
  append(out, dropped(shape, layer, mode));
  append(out, {3 * u, u, layer_parameters()});
  if (gradients) out.push_back(-layer_parameters());
  if (is_last(layer) && spec_.last_extra_bytes > 0) out.push_back(spec_.last_extra_bytes);
  if (layer == 0 && spec_.first_extra_units > 0) out.push_back(spec_.first_extra_units * u);
  append_freed(out, inventory(shape, layer));
  append(out, {-3 * u, -u, -u});  // workspace, the output and its gradient
  if (mode == Mode::full()) out.push_back(-kRngBytes);
  return out;
}

SyntheticModel::Deltas SyntheticModel::head(const ShapeKey& shape, bool gradients) const {
  const int last = layer_count() - 1;
  const std::int64_t u = unit(shape, last);
  const std::int64_t logits = u / spec_.width * spec_.vocabulary;
  const std::int64_t weights = 4 * spec_.vocabulary * spec_.width;
  Deltas out{logits, logits, weights};
  if (spec_.holds_outputs) out.insert(out.begin(), logits);
  if (gradients) out.push_back(-weights);
  append(out, {u, -logits});
  return out;
}

SyntheticModel::Deltas SyntheticModel::epilogue(const ShapeKey& shape, bool gradients) const {
  const std::int64_t weights = 4 * spec_.vocabulary * spec_.width;
  Deltas out{weights};
  if (gradients) out.push_back(-weights);
  for (const int layer : {0, spec_.encoder_layers}) {
    if (layer < layer_count()) append_freed(out, {net_of(gap(shape, layer))});
  }
  if (spec_.last_extra_bytes > 0) out.push_back(-spec_.last_extra_bytes);
  if (spec_.first_extra_units > 0) out.push_back(-spec_.first_extra_units * unit(shape, 0));
  return out;
}

SyntheticModel::Deltas SyntheticModel::optimizer(const ShapeKey& shape, bool steps,
                                                 bool first) const {
  const int last = layer_count() - 1;
  const std::int64_t logits = unit(shape, last) / spec_.width * spec_.vocabulary;
  if (!steps) return {-logits};
  Deltas out;
  if (first) out.push_back(2 * parameters());
  const std::int64_t gradients = parameters() - spec_.left_out_layers * layer_parameters();
  append(out, {2 * layer_parameters(), -2 * layer_parameters(), -logits, -gradients});
  return out;
}

double SyntheticModel::forward_seconds(const ShapeKey& shape, int layer) const {
  return 1e-4 + 1e-8 * static_cast<double>(unit(shape, layer));
}

Bytes SyntheticModel::settled_base() const { return Bytes(3 * parameters()); }

StepContext SyntheticModel::context(const ShapeKey& shape, Bytes budget_bytes) const {
  const bool gradients = micro_step_ % spec_.accumulation != 0;
  std::int64_t base = parameters();
  if (optimizer_has_state_) base += 2 * parameters();
  if (gradients) base += parameters();
  return {shape, Bytes(base), budget_bytes, gradients, Bytes(returning_bytes_)};
}

std::vector<SyntheticModel::Frame> SyntheticModel::frames_of(const ShapeKey& shape,
                                                             const Plan& plan) const {
  std::vector<Frame> frames;
  const std::vector<std::uint16_t> classes = order_of(structure());
  const std::vector<std::size_t> places = places_in(plan.layer_classes, classes);
  for (int i = 0; i < layer_count(); ++i) {
    const auto at = plan.layer_classes.empty() ? static_cast<std::size_t>(i)
                                               : places[static_cast<std::size_t>(i)];
    Mode mode = at < plan.modes.size() ? plan.modes[at] : plan.default_mode;
    const bool first_of_class = i == 0 || i == spec_.encoder_layers;
    if (at >= plan.modes.size() && plan.teach_first_of_class && first_of_class) mode = Mode::full();
    const bool joined = i > 0 && at < plan.joined.size() && plan.joined[at] != 0 &&
                        mode == Mode::full() && frames.back().mode == Mode::full();
    const std::int64_t held = net_of(inventory(shape, i)) - net_of(dropped(shape, i, mode));
    frames.push_back({mode, joined, false, false, held});
  }
  return frames;
}

// The whole segment is recomputed by its last layer's backward, and held from there on; its random
// states go with its first layer's.
SyntheticModel::Deltas SyntheticModel::joint_backward(const ShapeKey& shape, int layer,
                                                      const Run& run, bool gradients) const {
  const auto at = static_cast<std::size_t>(layer);
  const auto first = static_cast<int>(run.first_of_joint(at));
  Deltas out;
  const bool is_last = at + 1 == run.frames.size() || !run.frames[at + 1].joined;
  if (is_last) {
    for (int i = first; i < layer; ++i) append(out, forward(shape, i, Mode::keep()));
    append(out, recompute(shape, layer));
  }
  append(out, backward(shape, layer, Mode::keep(), gradients));
  if (layer > first) return out;
  for (std::size_t i = at; i == at || (i < run.frames.size() && run.frames[i].joined); ++i) {
    out.push_back(-kRngBytes);
  }
  return out;
}

void SyntheticModel::play_head(const Deltas& deltas, std::uint8_t variant, Run& run) {
  if (spec_.holds_outputs) {
    const bool recording = std::exchange(run.record, run.record && returning_bytes_ > 0);
    run.play(SegmentKey::until_return(run.frames.size()), -1, {deltas.front()}, 0, -1);
    run.record = recording;
    run.live -= deltas.front() + std::exchange(returning_bytes_, deltas.front());
  }
  run.play({SegmentKind::kHead, 0, Mode::keep(), variant}, -1, deltas, 1e-4, -1);
  run.live -= std::ranges::count(run.frames, Mode::full(), &Frame::mode) * spec_.cast_bytes;
  for (SegmentObservation& item : run.outcome.segments) {
    if (item.key.kind != SegmentKind::kForward) continue;
    item.released_bytes = item.key.mode == Mode::full() ? spec_.cast_bytes : 0;
  }
}

StepOutcome SyntheticModel::run(const StepContext& context, const StepDecision& decision) {
  Run run;
  run.outcome.context = context;
  run.outcome.plan = decision.plan;
  run.record = decision.record;
  run.live = run.peak = (context.base_bytes + context.returning_bytes).count();
  const ShapeKey& shape = context.shape;
  if (first_shape_.size() == 0) first_shape_ = shape;
  const bool gradients = context.gradients_present;
  const std::uint8_t present = gradients ? SegmentKey::kGradientsPresent : 0;
  const StepStructure layers = structure();
  const Plan& plan = *decision.plan;
  run.frames = frames_of(shape, plan);
  for (int i = 0; i < layer_count(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto [layer_class, variant, apart] = layers.layers[at];
    const Mode mode = run.frames[at].mode;
    const bool recording = std::exchange(run.record, run.record && !run.is_joint(at));
    run.play({SegmentKind::kGap, static_cast<std::uint16_t>(i), Mode::keep(), 0}, i, gap(shape, i),
             0, -1);
    run.play({SegmentKind::kForward, layer_class, mode, variant}, i, forward(shape, i, mode),
             forward_seconds(shape, i), -1);
    run.record = recording;
    run.frames[at].began = true;
    if (run.frames[at].joined) run.live -= unit(shape, i - 1);
  }
  play_head(head(shape, gradients), present, run);
  for (int i = layer_count() - 1; i >= 0; --i) {
    const auto [layer_class, variant, apart] = layers.layers[static_cast<std::size_t>(i)];
    Frame& frame = run.frames[static_cast<std::size_t>(i)];
    Deltas deltas = backward(shape, i, frame.revoked ? Mode::full() : frame.mode, gradients);
    if (frame.revoked) deltas.push_back(kRngBytes);  // a kept frame saved none
    const bool joint = run.is_joint(static_cast<std::size_t>(i));
    if (joint) deltas = joint_backward(shape, i, run, gradients);
    const bool record = std::exchange(run.record, run.record && !frame.revoked && !joint);
    const bool again = frame.mode == Mode::full() || frame.revoked;
    if (again) ++run.outcome.recomputed_layers;
    const bool recovers =
        frame.mode.kind == Mode::Kind::kSelective || frame.mode == Mode::offload();
    if (recovers && run.record) {
      run.outcome.segments.push_back({{SegmentKind::kRecompute, layer_class, frame.mode, variant},
                                      i,
                                      {{}, 0, 0, extra_seconds(shape, i, frame.mode)}});
    }
    run.play({SegmentKind::kBackward, layer_class, frame.mode,
              static_cast<std::uint8_t>(variant | present)},
             i, deltas, (again ? 3 : 2) * forward_seconds(shape, i), i);
    if (again && run.record) {
      const Deltas part = recompute(shape, i);
      run.outcome.segments.push_back(
          {{SegmentKind::kRecompute, layer_class, Mode::full(), variant},
           i,
           {part, net_of(part), peak_of(part), forward_seconds(shape, i)}});
    }
    run.record = record;
    frame.spoiled = frame.revoked || joint;
    frame.revoked = true;  // nothing left to revoke
  }
  run.play({SegmentKind::kEpilogue, 0, Mode::keep(), present}, -1, epilogue(shape, gradients), 0,
           -1);
  const bool steps = (micro_step_ + 1) % spec_.accumulation == 0;
  run.play({SegmentKind::kOptimizer, 0, Mode::keep(), present}, -1,
           optimizer(shape, steps, !optimizer_has_state_), 0, -1);
  optimizer_has_state_ = optimizer_has_state_ || steps;
  ++micro_step_;
  tell_peak_and_times(decision, run);
  return std::move(run.outcome);
}

// Times as the hook layer tells them; then all by the step's pace.
void SyntheticModel::tell_peak_and_times(const StepDecision& decision, Run& run) {
  std::uniform_real_distribution<double> noise(-spec_.peak_noise, spec_.peak_noise);
  run.outcome.peak_bytes =
      Bytes(static_cast<std::int64_t>(static_cast<double>(run.peak) * (1 + noise(random_))));
  const ShapeKey& shape = run.outcome.context.shape;
  std::map<std::uint16_t, double> forwards;
  std::map<std::pair<std::uint16_t, Mode>, double> recomputes;
  for (int i = 0; i < layer_count(); ++i) {
    const std::uint16_t layer_class = class_of(i);
    const Frame& frame = run.frames[static_cast<std::size_t>(i)];
    forwards[layer_class] = forward_seconds(shape, i);
    if (decision.record || frame.mode == Mode::keep() || frame.spoiled) continue;
    recomputes[{layer_class, frame.mode}] = extra_seconds(shape, i, frame.mode);
  }
  double pace = 1;
  if (spec_.pace_noise > 0) {
    std::uniform_real_distribution<double> exponent(-1, 1);
    pace = std::pow(1 + spec_.pace_noise, exponent(random_));
  }
  for (const auto& [layer_class, seconds] : forwards) {
    run.outcome.forwards.push_back({layer_class, pace * seconds});
  }
  for (const auto& [of, seconds] : recomputes) {
    run.outcome.recomputes.push_back(
        {of.first, of.second, pace * seconds, pace * forwards.at(of.first)});
  }
  for (SegmentObservation& item : run.outcome.segments) item.sample.seconds *= pace;
}

StepCosts SyntheticModel::true_costs(const ShapeKey& shape, bool gradients_present) const {
  StepCosts costs;
  for (int i = 0; i < layer_count(); ++i) {
    LayerCosts layer;
    layer.layer_class = class_of(i);
    layer.output_bytes = unit(shape, i);
    layer.follows_previous = i > 0 && i != spec_.encoder_layers;
    layer.gap_net_bytes = net_of(gap(shape, i));
    layer.gap_peak_bytes = peak_of(gap(shape, i));
    layer.residue_bytes = net_of(forward(shape, i, Mode::keep())) +
                          net_of(backward(shape, i, Mode::keep(), gradients_present));
    std::vector<Mode> modes{Mode::keep(), Mode::full()};
    for (int k = 0; k < spec_.menu_steps; ++k) {
      modes.push_back(Mode::selective(static_cast<std::uint16_t>(k)));
    }
    if (spec_.offloads) modes.push_back(Mode::offload());
    for (const Mode mode : modes) {
      const Deltas ahead = forward(shape, i, mode);
      const Deltas back = backward(shape, i, mode, gradients_present);
      const bool full = mode == Mode::full();
      layer.modes.push_back({mode, net_of(ahead), peak_of(ahead), full ? spec_.cast_bytes : 0,
                             peak_of(back), extra_seconds(shape, i, mode)});
    }
    costs.layers.push_back(std::move(layer));
  }
  const Deltas top = head(shape, gradients_present);
  costs.head_net_bytes = net_of(top);
  costs.head_peak_bytes = costs.until_release_peak_bytes = peak_of(top);
  if (spec_.holds_outputs) costs.return_peak_bytes = top.front();
  const Deltas end = epilogue(shape, gradients_present);
  costs.epilogue_net_bytes = net_of(end);
  costs.epilogue_peak_bytes = peak_of(end);
  costs.optimizer_peak_bytes = peak_of(optimizer(shape, true, false));
  return costs;
}

}  // namespace pudica::testing
