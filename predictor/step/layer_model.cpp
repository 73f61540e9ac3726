#include "predictor/step/layer_model.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "predictor/step/class_model.h"
#include "predictor/step/seen_mode.h"

namespace pudica {
namespace {

// Seconds of work that allocates one byte, where the clock has said nothing yet: it only has to
// make less recomputation look cheaper than more.
constexpr double kSecondsPerByte = 1e-9;

class LayerBuilder {
 public:
  LayerBuilder(const SegmentStore& store, const StepStructure& structure,
               const CostsRequest& request, const StepStructure::Layer& wanted)
      : store_(store), structure_(structure), request_(request), wanted_(wanted) {}

  Result<LayerModel> build() {
    ClassQuery query{request_.shape, wanted_.layer_class, request_.gradients_present,
                     request_.derives_kept};
    query.casts_present = request_.casts_present;
    const ClassModel classes(store_, query);
    ClassQuery early_query = query;
    early_query.early_free = true;
    const ClassModel early(store_, early_query);
    const auto residue = classes.residue(wanted_.variant);
    out_.point.layer_class = wanted_.layer_class;
    out_.point.residue_bytes = residue.value_or(0);
    out_.upper = out_.point;
    const bool plain_identified = is_identified(classes, wanted_.variant);
    std::optional<Error> missing;
    for (const Mode mode : modes_on_offer()) {
      if (!on_menu(mode) || out_.point.modes.size() >= LayerCosts::kMostModes) continue;
      const bool optional = mode != Mode::keep() && mode != Mode::full();
      if (optional && is_withheld(mode)) {
        out_.unknown.push_back(promised(query, mode));
        continue;
      }
      if (optional && !is_known(classes.best(mode, wanted_.variant), plain_identified)) {
        out_.unknown.push_back(unknown(query, mode));
        continue;
      }
      if (add_mode(classes, mode)) {
        note_early_free(early);
        continue;
      }
      const bool required = mode == Mode::keep() || mode == Mode::full();
      if (required && !missing) {
        missing = Error{ErrorCode::kUnavailable,
                        "not measured yet: " + to_string(SegmentKey{SegmentKind::kForward,
                                                                    wanted_.layer_class, mode, 0})};
      }
    }
    if (out_.point.modes.empty() && !missing) {
      missing = Error{
          ErrorCode::kUnavailable,
          "the menu leaves layer class " + std::to_string(wanted_.layer_class) + " without a mode"};
    }
    if (missing && (!request_.lenient || out_.point.modes.empty())) return *missing;
    add_output(classes);
    finish_seconds();
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool on_menu(Mode mode) const {
    if (mode == Mode::full() && store_.refuses_full(wanted_.layer_class)) return false;
    const StepStructure::Menu* const menu = menu_of_class();
    const bool strange =
        menu != nullptr && std::ranges::find(menu->not_at, request_.shape) != menu->not_at.end();
    if (mode.kind == Mode::Kind::kSelective && strange) return false;
    return is_on_menu(request_.menu, mode.kind);
  }

  // A kept forward leaves the output and what a recompute makes again. An output that the layer
  // saves as well is made again: counted as none, so that too much is planned for, never too
  // little.
  void add_output(const ClassModel& classes) {
    const auto again = classes.recompute(Mode::full());
    const auto find = [](const LayerCosts& layer, Mode mode) {
      return std::ranges::find(layer.modes, mode, &LayerModeCosts::mode);
    };
    const auto keep = find(out_.point, Mode::keep());
    const auto full = find(out_.point, Mode::full());
    if (!again || keep == out_.point.modes.end() || full == out_.point.modes.end()) return;
    const std::int64_t held = full->forward_net_bytes - full->released_bytes;
    const std::int64_t output = keep->forward_net_bytes - again->estimate.net_bytes;
    out_.point.output_bytes = std::clamp<std::int64_t>(output, 0, std::max<std::int64_t>(0, held));
    // What is freed early is bounded from below.
    const std::int64_t unsure =
        std::max<std::int64_t>(0, again->estimate.net_upper_bytes - again->estimate.net_bytes) +
        find(out_.upper, Mode::keep())->forward_net_bytes - keep->forward_net_bytes +
        find(out_.upper, Mode::full())->forward_net_bytes - full->forward_net_bytes;
    out_.upper.output_bytes = std::max<std::int64_t>(0, out_.point.output_bytes - unsure);
  }

  // `keep`, the class's menu, `offload`, `full`.
  [[nodiscard]] std::vector<Mode> modes_on_offer() const {
    const std::uint16_t layer_class = wanted_.layer_class;
    std::vector<Mode> modes{Mode::keep()};
    if (layer_class < structure_.menus.size() && structure_.menus[layer_class].id != 0) {
      for (std::size_t k = 0; k < structure_.menus[layer_class].steps.size(); ++k) {
        modes.push_back(Mode::selective(static_cast<std::uint16_t>(k)));
      }
    } else {
      for (const Mode mode : store_.modes(layer_class)) {
        if (mode.kind == Mode::Kind::kSelective) modes.push_back(mode);
      }
    }
    modes.push_back(Mode::offload());
    modes.push_back(Mode::full());
    return modes;
  }

  // Neither `keep` nor `full` is asked beyond the directions in which it was seen.
  static bool is_identified(const ClassModel& classes, std::uint8_t variant) {
    for (const Mode mode : {Mode::keep(), Mode::full()}) {
      const auto pair = classes.best(mode, variant);
      if (pair && !pair->identified) return false;
    }
    return true;
  }

  static bool is_known(const std::optional<ModePair>& pair, bool plain_identified) {
    return pair && pair->fit && (pair->identified || !plain_identified);
  }

  [[nodiscard]] UnknownMode unknown(const ClassQuery& query, Mode mode) {
    UnknownMode out = promised(query, mode);
    out.seen = grown_since_seen(store_, query, wanted_.variant, mode);
    return out;
  }

  [[nodiscard]] UnknownMode promised(const ClassQuery& query, Mode mode) {
    UnknownMode out{wanted_.layer_class, mode, std::nullopt};
    const StepStructure::Menu* const menu = menu_of_class();
    const bool told = menu != nullptr && mode.step < menu->promises.size();
    if (mode.kind != Mode::Kind::kSelective || !told) return out;
    const StepStructure::Menu::Promise& promise = menu->promises[mode.step];
    if (!growth_) growth_ = growth_at_least(store_, query, wanted_.variant, menu->shape);
    constexpr double kMost = 1e18;  // which fits
    const double freed = *growth_ * static_cast<double>(promise.freed_bytes);
    out.freed_bytes = static_cast<std::int64_t>(std::clamp(freed, -kMost, kMost));
    out.work_share = promise.work_share;
    return out;
  }

  [[nodiscard]] const StepStructure::Menu* menu_of_class() const {
    const std::uint16_t layer_class = wanted_.layer_class;
    return layer_class < structure_.menus.size() ? &structure_.menus[layer_class] : nullptr;
  }

  [[nodiscard]] bool is_withheld(Mode mode) const {
    return request_.withholds && request_.withholds(wanted_.layer_class, mode);
  }

  // False: nothing is known of the mode.
  bool add_mode(const ClassModel& classes, Mode mode) {
    const auto pair = classes.best(mode, wanted_.variant);
    if (!pair) return false;
    out_.identified = out_.identified && pair->identified;
    out_.fit = out_.fit && pair->fit;
    const std::int64_t theirs = pair->variant == wanted_.variant
                                    ? out_.point.residue_bytes
                                    : classes.residue(pair->variant).value_or(0);
    const std::int64_t beyond = std::max<std::int64_t>(0, out_.point.residue_bytes - theirs);
    LayerModeCosts costs;
    costs.mode = mode;
    costs.forward_net_bytes = pair->forward.net_bytes;
    costs.forward_peak_bytes = std::max(pair->forward.peak_bytes, pair->forward.net_bytes);
    costs.released_bytes = classes.released(mode, *pair, theirs);
    costs.backward_peak_bytes = pair->backward.peak_bytes + beyond;
    costs.extra_seconds = mode_seconds(classes, mode, *pair);
    out_.point.modes.push_back(costs);
    // What is left after forward and backward is gradients: the error of the one net is freed
    // again in the other, so residue and released bytes stay point estimates.
    costs.forward_net_bytes = std::max(costs.forward_net_bytes, pair->forward.net_upper_bytes);
    costs.forward_peak_bytes = std::max(
        {costs.forward_peak_bytes, pair->forward.peak_upper_bytes, costs.forward_net_bytes});
    costs.backward_peak_bytes =
        std::max(costs.backward_peak_bytes, pair->backward.peak_upper_bytes + beyond);
    out_.upper.modes.push_back(costs);
    if (mode == Mode::keep()) keep_seconds_ = pair->forward.seconds + pair->backward.seconds;
    return true;
  }

  // Of the mode added last: what its backward does not need where the layer before lets go of its
  // output in time.
  void note_early_free(const ClassModel& early) {
    LayerModeCosts& point = out_.point.modes.back();
    LayerModeCosts& upper = out_.upper.modes.back();
    point.holds_output = store_.holds_output(wanted_.layer_class, point.mode);
    upper.holds_output = point.holds_output;
    const auto pair = early.best(point.mode, wanted_.variant);
    if (!pair) return;
    const std::int64_t theirs = pair->variant == wanted_.variant
                                    ? out_.point.residue_bytes
                                    : early.residue(pair->variant).value_or(0);
    const std::int64_t beyond = std::max<std::int64_t>(0, out_.point.residue_bytes - theirs);
    const auto take = [](LayerModeCosts& costs, std::int64_t early_bytes) {
      costs.behind_holder_bytes =
          std::max<std::int64_t>(0, costs.backward_peak_bytes - early_bytes);
      costs.backward_peak_bytes -= costs.behind_holder_bytes;
    };
    take(point, pair->backward.peak_bytes + beyond);
    take(upper, std::max(pair->backward.peak_bytes, pair->backward.peak_upper_bytes) + beyond);
  }

  // Seconds over `keep`.
  double mode_seconds(const ClassModel& classes, Mode mode, const ModePair& pair) const {
    if (mode == Mode::keep()) return 0;
    const auto again = classes.recompute(mode);
    if (again && again->estimate.seconds > 0) return again->estimate.seconds;
    if (mode == Mode::full() && pair.forward.seconds > 0) return pair.forward.seconds;
    const double difference = pair.forward.seconds + pair.backward.seconds - keep_seconds_;
    if (keep_seconds_ > 0 && difference > 0) return difference;
    const std::int64_t bytes =
        again ? again->estimate.net_bytes : pair.backward.peak_bytes + pair.forward.peak_bytes;
    return kSecondsPerByte * static_cast<double>(std::max<std::int64_t>(1, bytes));
  }

  // A step of a menu holds less than the one before it and does more again, `full` does all again:
  // none is dearer than what does more. Times of few samples may say otherwise.
  static void order_seconds(std::vector<LayerModeCosts>& modes) {
    double most = std::numeric_limits<double>::infinity();
    for (std::size_t k = modes.size(); k-- > 0;) {
      LayerModeCosts& costs = modes[k];
      const Mode::Kind kind = costs.mode.kind;
      if (kind != Mode::Kind::kSelective && kind != Mode::Kind::kFull) continue;
      most = std::min(most, costs.extra_seconds);
      costs.extra_seconds = most;
    }
  }

  void finish_seconds() {
    order_seconds(out_.point.modes);
    order_seconds(out_.upper.modes);
    double least = out_.point.modes.front().extra_seconds;
    for (const LayerModeCosts& mode : out_.point.modes) least = std::min(least, mode.extra_seconds);
    for (LayerModeCosts& mode : out_.point.modes) mode.extra_seconds -= least;
    for (LayerModeCosts& mode : out_.upper.modes) mode.extra_seconds -= least;
    out_.seconds = keep_seconds_ + least;
  }

  const SegmentStore& store_;
  const StepStructure& structure_;
  const CostsRequest& request_;
  const StepStructure::Layer& wanted_;
  LayerModel out_;
  std::optional<double> growth_;  // of what the class's menu promises, to the shape asked for
  double keep_seconds_ = 0;
};

}  // namespace

Result<LayerModel> build_layer_model(const SegmentStore& store, const StepStructure& structure,
                                     const CostsRequest& request,
                                     const StepStructure::Layer& wanted) {
  return LayerBuilder(store, structure, request, wanted).build();
}

}  // namespace pudica
