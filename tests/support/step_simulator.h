// A training step at the level of single tensors: allocations and frees, nothing else. It knows
// no formula; the peak model is judged by it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <vector>

#include "pudica/peak_model.h"

namespace pudica::testing {

// Live bytes above those at the step's begin, and peaks since the last mark.
class SimulatedHeap {
 public:
  // A segment is what happens between two marks.
  struct Segment {
    std::int64_t net_bytes = 0;
    std::int64_t peak_bytes = 0;  // above the segment's first live bytes
  };

  int allocate(std::int64_t bytes) {
    live_ += bytes;
    peak_ = std::max(peak_, live_ + returning_);
    segment_peak_ = std::max(segment_peak_, live_ + apart_);
    tensors_[++last_] = bytes;
    return last_;
  }
  void release(int tensor) {
    live_ -= tensors_.at(tensor);
    tensors_.erase(tensor);
  }
  // The same, but the segment under way is told as if it had stayed.
  void release_apart(int tensor) {
    apart_ += tensors_.at(tensor);
    release(tensor);
  }
  // A tensor that was there before the step.
  void release_old(std::int64_t bytes) { live_ -= bytes; }
  // Live on top of all that until it is set to 0, and in no segment.
  void set_returning(std::int64_t bytes) { returning_ = bytes; }

  Segment end_segment() {
    const Segment segment{live_ + apart_ - start_, segment_peak_ - start_};
    start_ = live_;
    apart_ = 0;
    segment_peak_ = live_;
    return segment;
  }
  // Of the segment under way.
  [[nodiscard]] std::int64_t segment_peak() const { return segment_peak_ - start_; }
  [[nodiscard]] std::int64_t peak() const { return peak_; }
  [[nodiscard]] std::int64_t bytes_of(int tensor) const { return tensors_.at(tensor); }

 private:
  std::map<int, std::int64_t> tensors_;
  int last_ = 0;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t start_ = 0;
  std::int64_t apart_ = 0;
  std::int64_t segment_peak_ = 0;
  std::int64_t returning_ = 0;
};

// One operator: reads the output before it, writes its own.
struct SimulatedOperator {
  std::int64_t output = 0;
  std::int64_t gradient = 0;  // of the output
  std::int64_t forward_workspace = 0;
  std::int64_t backward_workspace = 0;
  std::int64_t weight_cast = 0;      // made in forward; cached until the head where held
  std::int64_t weight_gradient = 0;  // stays after the step
};

// What a mode holds from forward to backward, operator by operator. The layer's last output is
// held in every mode: it is the next layer's input.
struct SimulatedMode {
  std::vector<bool> output_held;
  std::vector<bool> cast_held;
  bool full = false;  // nothing but the last output, and the layer's state, is held
};

struct SimulatedLayer {
  std::vector<SimulatedOperator> operators;
  std::vector<SimulatedMode> modes;  // the first holds all outputs
  std::int64_t state = 0;            // held by a full layer to be run again
  std::int64_t gap_tensor = 0;       // made before the layer
  std::int64_t gap_workspace = 0;
  bool gap_freed_in_backward = false;  // else in the epilogue
};

struct SimulatedModel {
  std::vector<SimulatedLayer> layers;
  std::int64_t head_logits = 0;
  std::int64_t head_kept = 0;      // lives until the epilogue
  bool frees_casts_early = false;  // in the head, before the gradient of the logits is made
  std::int64_t returning = 0;      // logits of the last step, held until there are new ones
  std::int64_t old_gradients = 0;  // of the last step, freed between forward and backward
  std::int64_t epilogue_workspace = 0;
  std::int64_t epilogue_gradient = 0;
  std::int64_t optimizer_workspace = 0;
};

// What one step measured, segment by segment.
struct SimulatedStep {
  struct Layer {
    SimulatedHeap::Segment gap, forward, backward;
    std::int64_t released_bytes = 0;
  };
  std::vector<Layer> layers;
  SimulatedHeap::Segment head, epilogue, optimizer;
  std::int64_t return_peak_bytes = 0;  // of the head until what returns is gone
  std::int64_t until_release_peak_bytes = 0;
  std::int64_t peak_bytes = 0;
};

class StepSimulator {
 public:
  explicit StepSimulator(const SimulatedModel& model) : model_(model) {}

  // `joined` as in Plan: layers of full modes that are recomputed as one.
  SimulatedStep run(std::span<const std::uint8_t> choice,
                    std::span<const std::uint8_t> joined = {}) {
    heap_ = SimulatedHeap();
    step_ = SimulatedStep();
    joined_ = joined;
    const std::size_t count = model_.layers.size();
    step_.layers.resize(count);
    outputs_.assign(count, {});
    casts_.assign(count, {});
    gaps_.assign(count, 0);
    states_.assign(count, 0);
    heap_.set_returning(model_.returning);
    for (std::size_t i = 0; i < count; ++i) {
      forward(i, choice[i]);
      if (is_joined(i)) drop_output(i - 1, model_.layers[i - 1].operators.size() - 1);
    }
    head();
    for (std::size_t i = count; i-- > 0;) backward(i);
    epilogue();
    step_.peak_bytes = heap_.peak();
    return step_;
  }

 private:
  [[nodiscard]] bool is_joined(std::size_t i) const {
    return i < joined_.size() && joined_[i] != 0;
  }

  void forward(std::size_t i, std::uint8_t chosen) {
    const SimulatedLayer& layer = model_.layers[i];
    const int gap_workspace = heap_.allocate(layer.gap_workspace);
    gaps_[i] = heap_.allocate(layer.gap_tensor);
    heap_.release(gap_workspace);
    step_.layers[i].gap = heap_.end_segment();

    const SimulatedMode& mode = layer.modes[chosen];
    std::map<std::size_t, int>& outputs = outputs_[i];
    if (mode.full) states_[i] = heap_.allocate(layer.state);
    for (std::size_t j = 0; j < layer.operators.size(); ++j) {
      const SimulatedOperator& op = layer.operators[j];
      const int cast = heap_.allocate(op.weight_cast);
      const int workspace = heap_.allocate(op.forward_workspace);
      outputs[j] = heap_.allocate(op.output);
      heap_.release(workspace);
      if (mode.cast_held[j]) {
        casts_[i].push_back(cast);
      } else {
        heap_.release(cast);
      }
      if (j > 0 && !mode.output_held[j - 1]) drop_output(i, j - 1);
    }
    step_.layers[i].forward = heap_.end_segment();
  }

  void head() {
    const int logits = heap_.allocate(model_.head_logits);
    step_.return_peak_bytes = heap_.segment_peak();
    heap_.set_returning(0);
    head_kept_ = heap_.allocate(model_.head_kept);
    if (model_.frees_casts_early) release_casts();
    const int logits_gradient = heap_.allocate(model_.head_logits);
    heap_.release(logits);
    heap_.release_old(model_.old_gradients);
    gradient_ = heap_.allocate(model_.layers.back().operators.back().gradient);
    heap_.release(logits_gradient);
    if (!model_.frees_casts_early) release_casts();
    step_.head = heap_.end_segment();
  }

  void release_casts() {
    step_.until_release_peak_bytes = heap_.segment_peak();
    for (std::size_t i = 0; i < casts_.size(); ++i) {
      for (const int cast : casts_[i]) {
        step_.layers[i].released_bytes += heap_.bytes_of(cast);
        heap_.release_apart(cast);
      }
    }
  }

  void recompute(std::size_t i) {
    const SimulatedLayer& layer = model_.layers[i];
    for (std::size_t j = 0; j < layer.operators.size(); ++j) {  // what is missing
      if (outputs_[i].contains(j)) continue;
      const int cast = heap_.allocate(layer.operators[j].weight_cast);
      const int workspace = heap_.allocate(layer.operators[j].forward_workspace);
      outputs_[i][j] = heap_.allocate(layer.operators[j].output);
      heap_.release(workspace);
      heap_.release(cast);
    }
  }

  void backward(std::size_t i) {
    const SimulatedLayer& layer = model_.layers[i];
    std::size_t first = i;
    while (is_joined(first)) --first;
    for (std::size_t k = first; k <= i; ++k) recompute(k);  // those before run but once
    for (std::size_t j = layer.operators.size(); j-- > 0;) {
      const SimulatedOperator& op = layer.operators[j];
      const int workspace = heap_.allocate(op.backward_workspace);
      const int input_gradient = heap_.allocate(input_gradient_bytes(i, j));
      heap_.allocate(op.weight_gradient);
      heap_.release(workspace);
      heap_.release(gradient_);
      gradient_ = input_gradient;
      drop_output(i, j);
    }
    if (layer.gap_freed_in_backward) heap_.release(gaps_[i]);
    // A segment's states go with its first layer.
    for (std::size_t k = i; !is_joined(i) && k < states_.size() && (k == i || is_joined(k)); ++k) {
      if (states_[k] != 0) heap_.release(states_[k]);
    }
    step_.layers[i].backward = heap_.end_segment();
  }

  void epilogue() {
    const int workspace = heap_.allocate(model_.epilogue_workspace);
    heap_.allocate(model_.epilogue_gradient);
    heap_.release(workspace);
    heap_.release(gradient_);
    heap_.release(head_kept_);
    for (std::size_t i = 0; i < gaps_.size(); ++i) {
      if (!model_.layers[i].gap_freed_in_backward) heap_.release(gaps_[i]);
    }
    step_.epilogue = heap_.end_segment();
    heap_.release(heap_.allocate(model_.optimizer_workspace));
    step_.optimizer = heap_.end_segment();
  }

  [[nodiscard]] std::int64_t input_gradient_bytes(std::size_t i, std::size_t j) const {
    if (j > 0) return model_.layers[i].operators[j - 1].gradient;
    return i > 0 ? model_.layers[i - 1].operators.back().gradient : 0;
  }

  void drop_output(std::size_t i, std::size_t j) {
    heap_.release(outputs_[i].at(j));
    outputs_[i].erase(j);
  }

  const SimulatedModel& model_;
  SimulatedHeap heap_;
  SimulatedStep step_;
  std::vector<std::map<std::size_t, int>> outputs_;
  std::vector<std::vector<int>> casts_;
  std::vector<int> gaps_;
  std::vector<int> states_;  // 0: none
  std::span<const std::uint8_t> joined_;
  int head_kept_ = 0;
  int gradient_ = 0;
};

// The costs that a profiler would learn: from one step per mode with every layer in that mode
// (layers with fewer modes repeat), never from the mix that is to be predicted.
inline StepCosts measure_costs(const SimulatedModel& model) {
  std::size_t most_modes = 0;
  for (const SimulatedLayer& layer : model.layers) {
    most_modes = std::max(most_modes, layer.modes.size());
  }
  StepCosts costs;
  costs.layers.resize(model.layers.size());
  StepSimulator simulator(model);
  for (std::size_t m = 0; m < most_modes; ++m) {
    std::vector<std::uint8_t> choice;
    for (const SimulatedLayer& layer : model.layers) {
      choice.push_back(static_cast<std::uint8_t>(m % layer.modes.size()));
    }
    const SimulatedStep step = simulator.run(choice);
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
      const SimulatedStep::Layer& seen = step.layers[i];
      if (m >= model.layers[i].modes.size()) continue;
      LayerCosts& layer = costs.layers[i];
      layer.gap_net_bytes = seen.gap.net_bytes;
      layer.gap_peak_bytes = seen.gap.peak_bytes;
      layer.output_bytes = model.layers[i].operators.back().output;
      layer.follows_previous = i > 0;
      if (m == 0) {
        layer.residue_bytes =
            seen.forward.net_bytes + seen.backward.net_bytes - seen.released_bytes;
      }
      LayerModeCosts& mode = layer.modes.emplace_back();
      mode.mode = m == 0 ? Mode::keep() : Mode::selective(static_cast<std::uint16_t>(m));
      if (model.layers[i].modes[m].full) mode.mode = Mode::full();
      mode.forward_net_bytes = seen.forward.net_bytes;
      mode.forward_peak_bytes = seen.forward.peak_bytes;
      mode.released_bytes = seen.released_bytes;
      mode.backward_peak_bytes = seen.backward.peak_bytes;
      mode.extra_seconds = static_cast<double>(m);
    }
    costs.head_net_bytes = step.head.net_bytes;
    costs.head_peak_bytes = step.head.peak_bytes;
    costs.until_release_peak_bytes = step.until_release_peak_bytes;
    costs.returning_bytes = model.returning;
    costs.return_peak_bytes = step.return_peak_bytes;
    costs.epilogue_net_bytes = step.epilogue.net_bytes;
    costs.epilogue_peak_bytes = step.epilogue.peak_bytes;
    costs.optimizer_peak_bytes = step.optimizer.peak_bytes;
  }
  return costs;
}

// Whether held weight casts occur, and whether they depend on the mode.
enum class CastKind { kNone, kSameInAllModes, kByMode };

// Gives every layer a full mode, its last.
inline void add_full_modes(std::mt19937_64& random, SimulatedModel& model) {
  for (SimulatedLayer& layer : model.layers) {
    SimulatedMode full{std::vector<bool>(layer.operators.size(), false),
                       std::vector<bool>(layer.operators.size(), false), true};
    full.output_held.back() = true;
    layer.modes.push_back(full);
    layer.state = std::uniform_int_distribution<std::int64_t>(0, 1)(random) * 500;
  }
}

// A model of 1 to `most_layers` layers of random operators, modes and sizes.
inline SimulatedModel random_model(std::mt19937_64& random, std::size_t most_layers,
                                   CastKind casts) {
  const auto pick = [&random](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto sometimes = [&pick](std::int64_t most) { return pick(0, 2) == 0 ? 0 : pick(1, most); };
  SimulatedModel model;
  model.layers.resize(static_cast<std::size_t>(pick(1, static_cast<std::int64_t>(most_layers))));
  for (SimulatedLayer& layer : model.layers) {
    layer.operators.resize(static_cast<std::size_t>(pick(1, 6)));
    for (SimulatedOperator& op : layer.operators) {
      op = {.output = pick(1, 5000),
            .gradient = pick(1, 5000),
            .forward_workspace = sometimes(4000),
            .backward_workspace = sometimes(6000),
            .weight_cast = casts == CastKind::kNone ? 0 : sometimes(3000),
            .weight_gradient = sometimes(4000)};
    }
    const std::vector<bool> all(layer.operators.size(), true);
    layer.modes.resize(static_cast<std::size_t>(pick(1, 4)), SimulatedMode{all, all});
    for (SimulatedMode& mode : layer.modes) {
      if (&mode == &layer.modes.front()) continue;
      for (std::size_t j = 0; j < layer.operators.size(); ++j) {
        mode.output_held[j] = j + 1 == layer.operators.size() || pick(0, 1) == 1;
        if (casts == CastKind::kByMode) mode.cast_held[j] = pick(0, 1) == 1;
      }
    }
    layer.gap_tensor = sometimes(4000);
    layer.gap_workspace = sometimes(12000);
    layer.gap_freed_in_backward = pick(0, 1) == 1;
  }
  model.head_logits = sometimes(20000);
  model.head_kept = sometimes(2000);
  model.old_gradients = sometimes(30000);
  model.epilogue_workspace = sometimes(20000);
  model.epilogue_gradient = sometimes(5000);
  model.optimizer_workspace = sometimes(40000);
  model.returning = sometimes(30000);
  model.frees_casts_early = pick(0, 1) == 1;
  return model;
}

}  // namespace pudica::testing
