#include "controller/step_model.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "controller/class_model.h"
#include "controller/host_room.h"
#include "controller/seen_mode.h"

namespace pudica {
namespace {

constexpr std::size_t kMaxModes = 64;  // of one class; a choice is a byte

// Seconds of work that allocates one byte, where the clock has said nothing yet: it only has to
// make less recomputation look cheaper than more.
constexpr double kSecondsPerByte = 1e-9;

// One layer's costs as point estimate and upper bound.
struct LayerPair {
  LayerCosts point;
  LayerCosts upper;
  double seconds = 0;  // forward and backward in the fastest mode
};

std::string segment_name(SegmentKind kind, std::uint16_t layer_class, Mode mode) {
  return to_string(SegmentKey{kind, layer_class, mode, 0});
}

class Builder {
 public:
  Builder(const SegmentStore& store, const StepStructure& structure,
          const StepModelRequest& request)
      : store_(store), structure_(structure), request_(request) {}

  Result<StepModel> build() {
    if (structure_.layers.empty()) {
      return Error{ErrorCode::kUnavailable, "no layer is known yet"};
    }
    model_.point.layers.reserve(structure_.layers.size());
    model_.upper.layers.reserve(structure_.layers.size());
    for (std::size_t i = 0; i < structure_.layers.size(); ++i) {
      auto costs = layer(structure_.layers[i]);
      if (!costs) return costs.error();
      model_.point.layers.push_back((*costs)->point);
      model_.upper.layers.push_back((*costs)->upper);
      model_.point.step_seconds += (*costs)->seconds;
      add_gap(i);
      add_gap_epilogue(i);
      note_following(i);
    }
    auto head = add_head();
    if (!head) return head.error();
    add_epilogue_and_optimizer();
    fill_host(model_, request_.host_bytes);
    model_.upper.step_seconds = model_.point.step_seconds;
    return std::move(model_);
  }

 private:
  using Memo = std::pair<StepStructure::Layer, LayerPair>;

  [[nodiscard]] bool on_menu(Mode mode, std::uint16_t layer_class) const {
    if (mode == Mode::full() && store_.refuses_full(layer_class)) return false;
    return is_on_menu(request_.menu, mode.kind);
  }

  void use(bool identified, bool fit) {
    model_.identified = model_.identified && identified;
    model_.fit = model_.fit && fit;
  }

  // The costs of a layer, computed once for each class and variant.
  Result<const LayerPair*> layer(const StepStructure::Layer& wanted) {
    for (const Memo& memo : memo_) {
      if (memo.first == wanted) return &memo.second;
    }
    auto made = make_layer(wanted);
    if (!made) return made.error();
    memo_.reserve(structure_.layers.size());  // pointers into it stay valid
    memo_.emplace_back(wanted, std::move(*made));
    return &memo_.back().second;
  }

  Result<LayerPair> make_layer(const StepStructure::Layer& wanted) {
    const ClassQuery query{request_.shape, wanted.layer_class, request_.gradients_present,
                           request_.derives_kept};
    const ClassModel classes(store_, query);
    ClassQuery early_query = query;
    early_query.early_free = true;
    const ClassModel early(store_, early_query);
    const auto residue = classes.residue(wanted.variant);
    LayerPair out;
    keep_seconds_ = 0;
    out.point.layer_class = wanted.layer_class;
    out.point.residue_bytes = residue.value_or(0);
    out.upper = out.point;
    const bool plain_identified = is_identified(classes, wanted.variant);
    std::optional<Error> missing;
    for (const Mode mode : modes_of(wanted.layer_class)) {
      if (!on_menu(mode, wanted.layer_class) || out.point.modes.size() >= kMaxModes) continue;
      const bool optional = mode != Mode::keep() && mode != Mode::full();
      if (optional && !is_known(classes.best(mode, wanted.variant), plain_identified)) {
        note_unknown(query, wanted, mode);
        continue;
      }
      if (add_mode(classes, wanted, mode, out)) {
        note_early_free(early, wanted, out);
        continue;
      }
      const bool required = mode == Mode::keep() || mode == Mode::full();
      if (required && !missing) {
        missing = Error{
            ErrorCode::kUnavailable,
            "not measured yet: " + segment_name(SegmentKind::kForward, wanted.layer_class, mode)};
      }
    }
    if (out.point.modes.empty() && !missing) {
      missing = Error{
          ErrorCode::kUnavailable,
          "the menu leaves layer class " + std::to_string(wanted.layer_class) + " without a mode"};
    }
    if (missing && (!request_.lenient || out.point.modes.empty())) return *missing;
    add_output(classes, out);
    finish_seconds(out);
    return out;
  }

  void note_unknown(const ClassQuery& query, const StepStructure::Layer& wanted, Mode mode) {
    for (const UnknownMode& known : model_.unknown) {
      if (known.layer_class == wanted.layer_class && known.mode == mode) return;
    }
    model_.unknown.push_back(
        {wanted.layer_class, mode, grown_since_seen(store_, query, wanted.variant, mode)});
  }

  // A kept forward leaves the output and what a recompute makes again. An output that the layer
  // saves as well is made again: counted as none, so that too much is planned for, never too
  // little.
  void add_output(const ClassModel& classes, LayerPair& out) const {
    const auto again = classes.recompute(Mode::full());
    const auto find = [](const LayerCosts& layer, Mode mode) {
      return std::ranges::find(layer.modes, mode, &LayerModeCosts::mode);
    };
    const auto keep = find(out.point, Mode::keep());
    const auto full = find(out.point, Mode::full());
    if (!again || keep == out.point.modes.end() || full == out.point.modes.end()) return;
    const std::int64_t held = full->forward_net_bytes - full->released_bytes;
    const std::int64_t output = keep->forward_net_bytes - again->estimate.net_bytes;
    out.point.output_bytes = std::clamp<std::int64_t>(output, 0, std::max<std::int64_t>(0, held));
    // What is freed early is bounded from below.
    const std::int64_t unsure =
        std::max<std::int64_t>(0, again->estimate.net_upper_bytes - again->estimate.net_bytes) +
        find(out.upper, Mode::keep())->forward_net_bytes - keep->forward_net_bytes +
        find(out.upper, Mode::full())->forward_net_bytes - full->forward_net_bytes;
    out.upper.output_bytes = std::max<std::int64_t>(0, out.point.output_bytes - unsure);
  }

  // Layers of one class with nothing of an output's size made between them are taken to be a chain.
  void note_following(std::size_t index) {
    if (index == 0) return;
    const LayerCosts& before = model_.point.layers[index - 1];
    const LayerCosts& here = model_.point.layers[index];
    const bool follows = !structure_.layers[index].apart &&
                         here.layer_class == before.layer_class && before.output_bytes > 0 &&
                         here.gap_net_bytes < before.output_bytes;
    model_.point.layers[index].follows_previous = follows;
    model_.upper.layers[index].follows_previous = follows;
  }

  // `keep`, the class's menu, `offload`, `full`.
  [[nodiscard]] std::vector<Mode> modes_of(std::uint16_t layer_class) const {
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

  // False: nothing is known of the mode.
  bool add_mode(const ClassModel& classes, const StepStructure::Layer& wanted, Mode mode,
                LayerPair& out) {
    const auto pair = classes.best(mode, wanted.variant);
    if (!pair) return false;
    use(pair->identified, pair->fit);
    const std::int64_t theirs = pair->variant == wanted.variant
                                    ? out.point.residue_bytes
                                    : classes.residue(pair->variant).value_or(0);
    const std::int64_t beyond = std::max<std::int64_t>(0, out.point.residue_bytes - theirs);
    LayerModeCosts costs;
    costs.mode = mode;
    costs.forward_net_bytes = pair->forward.net_bytes;
    costs.forward_peak_bytes = std::max(pair->forward.peak_bytes, pair->forward.net_bytes);
    costs.released_bytes = std::max<std::int64_t>(0, pair->remaining_bytes() - theirs);
    costs.backward_peak_bytes = pair->backward.peak_bytes + beyond;
    costs.extra_seconds = mode_seconds(classes, mode, *pair);
    out.point.modes.push_back(costs);
    // What is left after forward and backward is gradients: the error of the one net is freed
    // again in the other, so residue and released bytes stay point estimates.
    costs.forward_net_bytes = std::max(costs.forward_net_bytes, pair->forward.net_upper_bytes);
    costs.forward_peak_bytes = std::max(
        {costs.forward_peak_bytes, pair->forward.peak_upper_bytes, costs.forward_net_bytes});
    costs.backward_peak_bytes =
        std::max(costs.backward_peak_bytes, pair->backward.peak_upper_bytes + beyond);
    out.upper.modes.push_back(costs);
    if (mode == Mode::keep()) keep_seconds_ = pair->forward.seconds + pair->backward.seconds;
    return true;
  }

  // Of the mode added last: what its backward does not need where the layer before lets go of its
  // output in time.
  void note_early_free(const ClassModel& early, const StepStructure::Layer& wanted,
                       LayerPair& out) const {
    LayerModeCosts& point = out.point.modes.back();
    LayerModeCosts& upper = out.upper.modes.back();
    point.holds_output = store_.holds_output(wanted.layer_class, point.mode);
    upper.holds_output = point.holds_output;
    const auto pair = early.best(point.mode, wanted.variant);
    if (!pair) return;
    const std::int64_t theirs = pair->variant == wanted.variant
                                    ? out.point.residue_bytes
                                    : early.residue(pair->variant).value_or(0);
    const std::int64_t beyond = std::max<std::int64_t>(0, out.point.residue_bytes - theirs);
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

  void finish_seconds(LayerPair& out) const {
    order_seconds(out.point.modes);
    order_seconds(out.upper.modes);
    double least = out.point.modes.front().extra_seconds;
    for (const LayerModeCosts& mode : out.point.modes) least = std::min(least, mode.extra_seconds);
    for (LayerModeCosts& mode : out.point.modes) mode.extra_seconds -= least;
    for (LayerModeCosts& mode : out.upper.modes) mode.extra_seconds -= least;
    out.seconds = keep_seconds_ + least;
  }

  void add_gap(std::size_t index) {
    const SegmentKey key{SegmentKind::kGap, static_cast<std::uint16_t>(index), Mode::keep(), 0};
    const auto gap = store_.predict(key, request_.shape);
    if (!gap) return;
    use(gap->estimate.identified, gap->fit);
    LayerCosts& point = model_.point.layers[index];
    point.gap_net_bytes = gap->estimate.net_bytes;
    point.gap_peak_bytes = gap->estimate.peak_bytes;
    LayerCosts& upper = model_.upper.layers[index];
    upper.gap_net_bytes = std::max(gap->estimate.net_bytes, gap->estimate.net_upper_bytes);
    upper.gap_peak_bytes = std::max(gap->estimate.peak_bytes, gap->estimate.peak_upper_bytes);
    model_.point.step_seconds += gap->estimate.seconds;
  }

  // The backward of what stands before layer `index` follows the layer's own: its highest point
  // counts as the layer's, what it leaves likewise.
  void add_gap_epilogue(std::size_t index) {
    if (index == 0) return;  // the step's own
    bool as_asked = true;
    const auto gap = step_segment(SegmentKind::kEpilogue, as_asked, index);
    if (!gap) return;
    const auto add = [](LayerCosts& layer, std::int64_t net_bytes, std::int64_t peak_bytes) {
      for (LayerModeCosts& mode : layer.modes) {
        const std::int64_t after =
            layer.residue_bytes + mode.released_bytes - mode.forward_net_bytes;
        const std::int64_t behind = mode.backward_peak_bytes + mode.behind_holder_bytes;
        mode.backward_peak_bytes = std::max(mode.backward_peak_bytes, after + peak_bytes);
        mode.behind_holder_bytes = std::max<std::int64_t>(0, behind - mode.backward_peak_bytes);
      }
      layer.residue_bytes += net_bytes;
    };
    const SegmentEstimate& bytes = gap->estimate;
    add(model_.point.layers[index], bytes.net_bytes, bytes.peak_bytes);
    add(model_.upper.layers[index], std::max(bytes.net_bytes, bytes.net_upper_bytes),
        std::max(bytes.peak_bytes, bytes.peak_upper_bytes));
  }

  // A segment of the whole step, by preference as it is with gradients as asked.
  std::optional<StoredEstimate> step_segment(SegmentKind kind, bool& as_asked,
                                             std::size_t index = 0) {
    SegmentKey key{kind, static_cast<std::uint16_t>(index), Mode::keep(), 0};
    key.variant = request_.gradients_present ? SegmentKey::kGradientsPresent : 0;
    auto found = store_.predict(key, request_.shape);
    as_asked = found.has_value();
    if (!found) {
      key.variant ^= SegmentKey::kGradientsPresent;
      found = store_.predict(key, request_.shape);
    }
    if (found) use(found->estimate.identified && as_asked, found->fit && as_asked);
    if (found) model_.point.step_seconds += found->estimate.seconds;
    return found;
  }

  Result<void> add_head() {
    bool as_asked = true;
    const auto head = step_segment(SegmentKind::kHead, as_asked);
    if (!head) {
      return Error{ErrorCode::kUnavailable,
                   "not measured yet: " + segment_name(SegmentKind::kHead, 0, Mode::keep())};
    }
    // The head was measured in steps in which some layers ran `full`: what those released in it
    // belongs to the plan, not to the head.
    const bool present = request_.gradients_present == as_asked;
    std::int64_t released = 0;
    for (const auto& [layer, count] : store_.head_full_layers(present)) {
      released += count * released_by_full(store_, request_.shape, request_.gradients_present,
                                           layer.first, layer.second);
    }
    const SegmentEstimate& estimate = head->estimate;
    model_.point.head_net_bytes = estimate.net_bytes + released;
    model_.point.head_peak_bytes = estimate.peak_bytes;
    model_.upper.head_net_bytes = std::max(estimate.net_bytes, estimate.net_upper_bytes) + released;
    model_.upper.head_peak_bytes = std::max(estimate.peak_bytes, estimate.peak_upper_bytes);
    note_early_head(as_asked);
    add_return();
    return {};
  }

  void note_early_head(bool as_asked) {
    SegmentKey key{SegmentKind::kHead, 0, Mode::keep(), 0};
    const bool present = request_.gradients_present == as_asked;
    if (present) key.variant = SegmentKey::kGradientsPresent;
    const auto early = store_.predict(early_free(key), request_.shape);
    if (!early) return;
    const auto take = [](StepCosts& costs, std::int64_t early_bytes) {
      costs.head_behind_holder_bytes =
          std::max<std::int64_t>(0, costs.head_peak_bytes - early_bytes);
      costs.head_peak_bytes -= costs.head_behind_holder_bytes;
    };
    const SegmentEstimate& estimate = early->estimate;
    take(model_.point, estimate.peak_bytes);
    take(model_.upper, std::max(estimate.peak_bytes, estimate.peak_upper_bytes));
  }

  // Until it is known where the forward returns, it is taken to do so at the head's end.
  void add_return() {
    model_.point.returning_bytes = model_.upper.returning_bytes = request_.returning_bytes;
    model_.point.return_peak_bytes = model_.point.head_peak_bytes;
    model_.upper.return_peak_bytes = model_.upper.head_peak_bytes;
    if (request_.returning_bytes == 0) return;
    const auto until =
        store_.predict(SegmentKey::until_return(structure_.layers.size()), request_.shape);
    if (!until) return;
    use(until->estimate.identified && until->fit, true);
    const auto cut = [](std::int64_t bytes, std::int64_t& peak) { peak = std::min(peak, bytes); };
    cut(until->estimate.peak_bytes, model_.point.return_peak_bytes);
    if (!until->fit) return;
    cut(std::max(until->estimate.peak_bytes, until->estimate.peak_upper_bytes),
        model_.upper.return_peak_bytes);
  }

  void add_epilogue_and_optimizer() {
    bool as_asked = true;
    if (const auto epilogue = step_segment(SegmentKind::kEpilogue, as_asked)) {
      const SegmentEstimate& estimate = epilogue->estimate;
      model_.point.epilogue_net_bytes = estimate.net_bytes;
      model_.point.epilogue_peak_bytes = estimate.peak_bytes;
      model_.upper.epilogue_net_bytes = std::max(estimate.net_bytes, estimate.net_upper_bytes);
      model_.upper.epilogue_peak_bytes = std::max(estimate.peak_bytes, estimate.peak_upper_bytes);
    }
    // The optimizer needs the same with and without accumulation: either sample is as good.
    const StepModel before = StepModel{{}, {}, model_.identified, model_.fit};
    if (const auto optimizer = step_segment(SegmentKind::kOptimizer, as_asked)) {
      model_.point.optimizer_peak_bytes = optimizer->estimate.peak_bytes + request_.state_bytes;
      model_.upper.optimizer_peak_bytes =
          std::max(model_.point.optimizer_peak_bytes,
                   optimizer->estimate.peak_upper_bytes + request_.state_bytes);
      if (!as_asked) {
        model_.identified = before.identified;
        model_.fit = before.fit;
      }
    }
  }

  const SegmentStore& store_;
  const StepStructure& structure_;
  const StepModelRequest& request_;
  StepModel model_;
  std::vector<Memo> memo_;
  double keep_seconds_ = 0;
};

}  // namespace

Result<StepModel> build_step_model(const SegmentStore& store, const StepStructure& structure,
                                   const StepModelRequest& request) {
  return Builder(store, structure, request).build();
}

}  // namespace pudica
