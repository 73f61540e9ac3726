#include "inspect/explanation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <span>
#include <utility>

namespace pudica::inspect {
namespace {

using Choice = std::vector<std::uint8_t>;

// A certificate below this is as good as none.
constexpr double kNegligibleSeconds = 1e-6;
// A margin below this share of the budget is not worth a word for each layer.
constexpr std::int64_t kNamedMarginShare = 1000;

std::optional<std::uint8_t> index_of(const LayerCosts& layer, Mode mode) {
  const auto found = std::ranges::find(layer.modes, mode, &LayerModeCosts::mode);
  if (found == layer.modes.end()) return std::nullopt;
  return static_cast<std::uint8_t>(found - layer.modes.begin());
}

std::string verb(Mode mode) {
  switch (mode.kind) {
    case Mode::Kind::kKeep:
      return "kept";
    case Mode::Kind::kSelective:
      return "recomputed in part";
    case Mode::Kind::kOffload:
      return "offloaded";
    case Mode::Kind::kFull:
      return "recomputed";
  }
  return "planned";
}

// The plan under one change: what the step would peak at with one layer in another mode.
class Reasoner {
 public:
  Reasoner(const ExplanationInputs& inputs, const Choice& choice)
      : inputs_(inputs), choice_(choice), peak_(peak_with(0, choice.empty() ? 0 : choice[0])) {}

  [[nodiscard]] Bytes peak() const { return peak_; }
  [[nodiscard]] bool limited() const { return inputs_.budget_bytes > Bytes(0); }
  // What a plan may use: the budget less the margin.
  [[nodiscard]] Bytes room() const { return inputs_.budget_bytes - inputs_.estimate.margin_bytes; }

  [[nodiscard]] std::string why(std::size_t layer) const {
    const LayerModeCosts& mode = inputs_.costs.layers[layer].modes[choice_[layer]];
    if (is_joined(layer) || is_joined(layer + 1)) return why_joined(layer);
    return mode.mode == Mode::keep() ? why_kept(layer) : why_not_kept(layer, mode);
  }

 private:
  [[nodiscard]] bool is_joined(std::size_t layer) const {
    return layer < inputs_.joined.size() && inputs_.joined[layer] != 0;
  }

  [[nodiscard]] std::string why_joined(std::size_t layer) const {
    std::size_t first = layer;
    while (is_joined(first)) --first;
    std::size_t last = layer;
    while (is_joined(last + 1)) ++last;
    return "recomputed as one with layers " + std::to_string(first) + " to " +
           std::to_string(last) + ", which hold what layer " + std::to_string(first) +
           " reads: recomputing each alone does not stay within " + room_text();
  }

  [[nodiscard]] Bytes peak_with(std::size_t layer, std::uint8_t mode) const {
    Choice changed = choice_;
    if (!changed.empty()) changed[layer] = mode;
    return inputs_.estimate.base_bytes +
           Bytes(step_peak_bytes(inputs_.costs, changed, inputs_.joined));
  }

  [[nodiscard]] std::string room_text() const {
    std::string text = "the budget of " + format_bytes(inputs_.budget_bytes);
    const std::int64_t margin = inputs_.estimate.margin_bytes.count();
    if (margin > inputs_.budget_bytes.count() / kNamedMarginShare) {
      text += " less the margin of " + format_bytes(inputs_.estimate.margin_bytes);
    }
    return text;
  }

  // The mode that would lower the step's peak most, if any does.
  [[nodiscard]] std::optional<std::uint8_t> lowering_mode(std::size_t layer) const {
    std::optional<std::uint8_t> best;
    Bytes least = peak_;
    const std::size_t count = inputs_.costs.layers[layer].modes.size();
    for (std::uint8_t mode = 0; mode < count; ++mode) {
      const Bytes with = peak_with(layer, mode);
      if (with >= least) continue;
      least = with;
      best = mode;
    }
    return best;
  }

  [[nodiscard]] std::string why_kept(std::size_t layer) const {
    if (!limited()) return "kept: no budget is set";
    const auto& modes = inputs_.costs.layers[layer].modes;
    if (modes.size() < 2) return "kept: no other mode of it is known or on the menu";
    const bool all_kept =
        std::ranges::all_of(inputs_.modes, [](Mode mode) { return mode == Mode::keep(); });
    if (all_kept && peak_ <= room()) {
      return "kept: with every layer kept the step peaks at " + format_bytes(peak_) + ", within " +
             room_text();
    }
    const auto other = lowering_mode(layer);
    if (peak_ <= room()) {
      const auto most = std::ranges::min_element(modes, {}, &LayerModeCosts::forward_net_bytes);
      const Bytes freed(modes[choice_[layer]].forward_net_bytes - most->forward_net_bytes);
      return "kept: the step stays within " + room_text() +
             " without recomputing it, which would free " + format_bytes(freed) + " for " +
             format_seconds(most->extra_seconds);
    }
    if (!other) return "kept: recomputing it would not lower the step's peak";
    const Bytes lower = peak_with(layer, *other);
    return "kept: recomputing it would lower the step's peak to " + format_bytes(lower) +
           (lower <= room() ? ", within " : ", still not within ") + room_text();
  }

  [[nodiscard]] std::string why_not_kept(std::size_t layer, const LayerModeCosts& mode) const {
    const LayerCosts& costs = inputs_.costs.layers[layer];
    const auto keep = index_of(costs, Mode::keep());
    if (!keep) return verb(mode.mode) + ": keeping it is not on the menu";
    const Bytes freed(costs.modes[*keep].forward_net_bytes - mode.forward_net_bytes);
    const std::string gain = verb(mode.mode) + ": frees " + format_bytes(freed) + " for " +
                             format_seconds(mode.extra_seconds - costs.modes[*keep].extra_seconds);
    if (!limited()) return gain + ", though no budget is set";
    const Bytes with_keep = peak_with(layer, *keep);
    if (with_keep > room()) {
      std::string text = gain + "; if kept, the step would peak at " + format_bytes(with_keep) +
                         ", " + format_bytes(with_keep - room()) + " over " + room_text();
      if (peak_ <= inputs_.budget_bytes) return text;
      return text + (inputs_.own_plan ? ", within which no plan stays"
                                      : ", over which the plan is already");
    }
    if (!inputs_.estimate.identified) {
      return gain + "; if kept, the step would peak at about " + format_bytes(with_keep) +
             ", but no shape like this one was measured, so the plan rests on upper bounds";
    }
    return gain + "; if kept, the step would peak at " + format_bytes(with_keep) +
           " and still stay within " + room_text();
  }

  const ExplanationInputs& inputs_;
  const Choice& choice_;
  Bytes peak_;
};

// The planner's certificate holds for what was measured, where no layer frees bytes in the head.
bool is_certified(const ExplanationInputs& inputs, const Reasoner& reasoner) {
  if (!inputs.own_plan || !inputs.estimate.identified || !inputs.estimate.plan->feasible) {
    return false;
  }
  if (!reasoner.limited() || reasoner.peak() > reasoner.room()) return false;
  return std::ranges::all_of(inputs.costs.layers, [](const LayerCosts& layer) {
    return std::ranges::all_of(layer.modes,
                               [](const LayerModeCosts& mode) { return mode.released_bytes == 0; });
  });
}

std::string reason_of(const ExplanationInputs& inputs, const Reasoner& reasoner, double extra) {
  std::string text =
      inputs.own_plan ? inputs.estimate.plan->reason
                      : "the plan in use, at what is known now: " + inputs.estimate.plan->reason +
                            " would be planned anew";
  if (extra <= 0 || !is_certified(inputs, reasoner)) return text;
  const double gap = inputs.estimate.plan->certified_gap_seconds;
  if (gap < kNegligibleSeconds) return text + "; no plan that fits is faster";
  return text + "; no plan that fits is faster by more than " + format_seconds(gap);
}

std::string class_name(const StepStructure& structure, std::uint16_t layer_class) {
  if (layer_class < structure.class_names.size()) return structure.class_names[layer_class];
  return "class " + std::to_string(layer_class);
}

// What the hook layer tells of a mode; empty where it told nothing yet.
std::string words_of(const StepStructure& structure, std::uint16_t layer_class, Mode mode) {
  if (mode.kind != Mode::Kind::kSelective || layer_class >= structure.menus.size()) return {};
  const auto& steps = structure.menus[layer_class].steps;
  return mode.step < steps.size() ? steps[mode.step] : std::string();
}

MenuExplanation menu_item(const ExplanationInputs& inputs, std::uint16_t layer_class, Mode mode) {
  MenuExplanation item;
  item.layer_class = class_name(inputs.structure, layer_class);
  item.mode = mode;
  item.what = words_of(inputs.structure, layer_class, mode);
  return item;
}

// What no plan was better off with was not measured: it is told as its menu promises.
void add_promised(const ExplanationInputs& inputs, const LayerCosts& layer,
                  std::vector<MenuExplanation>& out) {
  if (layer.layer_class >= inputs.structure.menus.size()) return;
  const StepStructure::Menu& menu = inputs.structure.menus[layer.layer_class];
  const auto keep = index_of(layer, Mode::keep());
  const auto full = index_of(layer, Mode::full());
  for (std::uint16_t step = 0; step < menu.steps.size(); ++step) {
    if (index_of(layer, Mode::selective(step))) continue;
    MenuExplanation item = menu_item(inputs, layer.layer_class, Mode::selective(step));
    item.measured = false;
    if (step < menu.promises.size() && keep && full) {
      const auto& promise = menu.promises[step];
      item.freed_bytes = Bytes(promise.freed_bytes);
      item.extra_seconds = promise.work_share *
                           (layer.modes[*full].extra_seconds - layer.modes[*keep].extra_seconds);
    }
    out.push_back(std::move(item));
  }
}

std::vector<MenuExplanation> menu_of(const ExplanationInputs& inputs) {
  std::vector<MenuExplanation> out;
  std::vector<std::uint16_t> done;
  for (const LayerCosts& layer : inputs.costs.layers) {
    if (std::ranges::find(done, layer.layer_class) != done.end()) continue;
    done.push_back(layer.layer_class);
    const auto keep = index_of(layer, Mode::keep());
    for (const LayerModeCosts& mode : layer.modes) {
      if (mode.mode.kind != Mode::Kind::kSelective) continue;
      MenuExplanation item = menu_item(inputs, layer.layer_class, mode.mode);
      item.extra_seconds = mode.extra_seconds;
      if (keep) {
        item.freed_bytes = Bytes(layer.modes[*keep].forward_net_bytes - mode.forward_net_bytes);
        item.extra_seconds -= layer.modes[*keep].extra_seconds;
      }
      out.push_back(std::move(item));
    }
    add_promised(inputs, layer, out);
  }
  return out;
}

}  // namespace

Result<Explanation> explain_plan(const ExplanationInputs& inputs) {
  const std::vector<LayerCosts>& layers = inputs.costs.layers;
  if (inputs.modes.size() != layers.size()) {
    return invalid_argument("a plan of " + std::to_string(inputs.modes.size()) +
                            " layers, expected " + std::to_string(layers.size()));
  }
  Choice choice;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto mode = index_of(layers[i], inputs.modes[i]);
    if (!mode) {
      return invalid_argument("layer " + std::to_string(i) + ": mode '" +
                              to_string(inputs.modes[i]) + "' is not one that was learned");
    }
    choice.push_back(*mode);
  }
  const Reasoner reasoner(inputs, choice);
  Explanation out;
  out.key = inputs.estimate.shape;
  out.budget_bytes = inputs.budget_bytes;
  out.predicted_peak_bytes = reasoner.peak();
  out.fits = inputs.own_plan ? inputs.estimate.plan->feasible
                             : !reasoner.limited() || reasoner.peak() <= inputs.budget_bytes;
  out.keep_all_peak_bytes = inputs.estimate.keep_all_peak_bytes;
  out.floor_peak_bytes = inputs.estimate.floor_peak_bytes;
  out.margin_bytes = inputs.estimate.margin_bytes;
  out.extra_seconds = step_extra_seconds(inputs.costs, choice);
  out.reason = reason_of(inputs, reasoner, out.extra_seconds);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerModeCosts& mode = layers[i].modes[choice[i]];
    LayerExplanation layer;
    layer.layer = static_cast<std::int64_t>(i);
    layer.layer_class = class_name(inputs.structure, layers[i].layer_class);
    layer.mode = mode.mode;
    layer.held_bytes = Bytes(mode.forward_net_bytes);
    const auto keep = index_of(layers[i], Mode::keep());
    layer.keep_held_bytes = Bytes(layers[i].modes[keep.value_or(choice[i])].forward_net_bytes);
    layer.extra_seconds = mode.extra_seconds;
    layer.why = reasoner.why(i);
    out.layers.push_back(std::move(layer));
  }
  out.menu = menu_of(inputs);
  return out;
}

std::string format_seconds(double seconds) {
  constexpr double kMilli = 1e-3;
  constexpr double kMicro = 1e-6;
  std::array<char, 48> text{};
  const double size = std::abs(seconds);
  const auto write = [&text](double value, const char* unit) {
    const int digits = std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
    std::snprintf(text.data(), text.size(), "%.*f %s", digits, value, unit);
  };
  if (size >= 1) {
    write(seconds, "s");
  } else if (size >= kMilli) {
    write(seconds / kMilli, "ms");
  } else if (size > 0) {
    write(seconds / kMicro, "us");
  } else {
    return "no time";
  }
  return text.data();
}

}  // namespace pudica::inspect
