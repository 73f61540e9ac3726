#include "predictor/step/step_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "predictor/step/class_model.h"
#include "predictor/step/host_room.h"
#include "predictor/step/layer_model.h"

namespace pudica {
namespace {

class Builder {
 public:
  Builder(const SegmentStore& store, const StepStructure& structure, const CostsRequest& request)
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
    add_waiting();
    fill_host(model_, request_.host_bytes);
    model_.upper.step_seconds = model_.point.step_seconds;
    return std::move(model_);
  }

 private:
  using Memo = std::pair<StepStructure::Layer, LayerModel>;

  void use(bool identified, bool fit) {
    model_.identified = model_.identified && identified;
    model_.fit = model_.fit && fit;
  }

  // The costs of a layer, computed once for each class and variant.
  Result<const LayerModel*> layer(const StepStructure::Layer& wanted) {
    for (const Memo& memo : memo_) {
      if (memo.first == wanted) return &memo.second;
    }
    auto made = build_layer_model(store_, structure_, request_, wanted);
    if (!made) return made.error();
    use(made->identified, made->fit);
    for (const UnknownMode& mode : made->unknown) note_unknown(mode);
    memo_.reserve(structure_.layers.size());  // pointers into it stay valid
    memo_.emplace_back(wanted, std::move(*made));
    return &memo_.back().second;
  }

  void note_unknown(const UnknownMode& mode) {
    for (const UnknownMode& known : model_.unknown) {
      if (known.layer_class == mode.layer_class && known.mode == mode.mode) return;
    }
    model_.unknown.push_back(mode);
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

  // Of this kind of step.
  [[nodiscard]] SegmentKey as_known(const SegmentKey& key) const {
    return store_.as_known(key.in_kind(request_.step_kind), request_.casts_present);
  }

  void add_gap(std::size_t index) {
    const SegmentKey key{SegmentKind::kGap, static_cast<std::uint16_t>(index), Mode::keep(), 0};
    const auto gap = store_.predict_with_unread(as_known(key), request_.shape);
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
    auto found = store_.predict(as_known(key), request_.shape);
    as_asked = found.has_value();
    if (!found) {
      key.variant ^= SegmentKey::kGradientsPresent;
      found = store_.predict(as_known(key), request_.shape);
    }
    if (found) use(found->estimate.identified && as_asked, found->fit && as_asked);
    if (found) model_.point.step_seconds += found->estimate.seconds;
    return found;
  }

  Result<void> add_head() {
    bool as_asked = true;
    auto head = step_segment(SegmentKind::kHead, as_asked);
    SegmentKey key{SegmentKind::kHead, 0, Mode::keep(), 0};
    if (!head && request_.waits) {
      head = store_.predict_with_unread(as_known(SegmentKey::until_next()), request_.shape);
      if (head) use(head->estimate.identified, head->fit);
    }
    if (!head) return Error{ErrorCode::kUnavailable, "not measured yet: " + to_string(key)};
    const SegmentEstimate& estimate = head->estimate;
    model_.point.head_net_bytes = estimate.net_bytes;
    model_.point.head_peak_bytes = estimate.peak_bytes;
    model_.upper.head_net_bytes = std::max(estimate.net_bytes, estimate.net_upper_bytes);
    model_.upper.head_peak_bytes = upper_peak(estimate);
    add_until_release();
    if (request_.gradients_present == as_asked) key.variant = SegmentKey::kGradientsPresent;
    note_early_head(as_known(key));
    add_return();
    return {};
  }

  static std::int64_t upper_peak(const SegmentEstimate& estimate) {
    return std::max(estimate.peak_bytes, estimate.peak_upper_bytes);
  }

  // Until it is known where the layers' bytes go, they are taken to do so at the head's end.
  void add_until_release() {
    model_.point.until_release_peak_bytes = model_.point.head_peak_bytes;
    model_.upper.until_release_peak_bytes = model_.upper.head_peak_bytes;
    const auto until = store_.predict(as_known(SegmentKey::until_release()), request_.shape);
    if (!until || !until->fit) return;
    const auto cut = [](std::int64_t bytes, std::int64_t& peak) { peak = std::min(peak, bytes); };
    cut(until->estimate.peak_bytes, model_.point.until_release_peak_bytes);
    cut(upper_peak(until->estimate), model_.upper.until_release_peak_bytes);
  }

  // Less where the layer before lets go of its output in time; more where what nobody reads is
  // still there.
  void note_early_head(const SegmentKey& head) {
    const auto early = store_.predict(early_free(head), request_.shape);
    if (!early) return;
    const SegmentKey until = as_known(SegmentKey::until_release());
    const auto early_until = store_.predict(early_free(until), request_.shape);
    const auto take = [](std::int64_t& peak, std::int64_t early_bytes) {
      return std::max<std::int64_t>(0, std::exchange(peak, early_bytes) - early_bytes);
    };
    const auto take_both = [&](StepCosts& costs, std::int64_t whole, std::int64_t part) {
      const std::int64_t of_whole = take(costs.head_peak_bytes, whole);
      const std::int64_t of_part = take(costs.until_release_peak_bytes, std::min(part, whole));
      costs.head_behind_holder_bytes = std::max(of_whole, of_part);
    };
    const bool is_told = early_until && early_until->fit;
    take_both(model_.point, early->estimate.peak_bytes,
              is_told ? early_until->estimate.peak_bytes : model_.point.until_release_peak_bytes);
    take_both(model_.upper, upper_peak(early->estimate),
              is_told ? upper_peak(early_until->estimate) : model_.upper.until_release_peak_bytes);
  }

  // Until it is known where the forward returns, it is taken to do so at the head's end.
  void add_return() {
    model_.point.returning_bytes = model_.upper.returning_bytes = request_.returning_bytes;
    model_.point.return_peak_bytes = model_.point.head_peak_bytes;
    model_.upper.return_peak_bytes = model_.upper.head_peak_bytes;
    if (request_.returning_bytes == 0) return;
    const SegmentKey until_return = as_known(SegmentKey::until_return(structure_.layers.size()));
    const auto until = store_.predict_with_unread(until_return, request_.shape);
    if (!until) return;
    use(until->estimate.identified && until->fit, true);
    const auto cut = [](std::int64_t bytes, std::int64_t& peak) { peak = std::min(peak, bytes); };
    cut(until->estimate.peak_bytes, model_.point.return_peak_bytes);
    if (!until->fit) return;
    cut(std::max(until->estimate.peak_bytes, until->estimate.peak_upper_bytes),
        model_.upper.return_peak_bytes);
  }

  void add_waiting() {
    const auto waiting =
        store_.predict_with_unread(as_known(SegmentKey::until_next()), request_.shape);
    if (!waiting) return;
    const SegmentEstimate& estimate = waiting->estimate;
    model_.may_wait = waiting->fit;
    model_.point.waiting_net_bytes = estimate.net_bytes;
    model_.point.waiting_peak_bytes = estimate.peak_bytes;
    model_.upper.waiting_net_bytes = std::max(estimate.net_bytes, estimate.net_upper_bytes);
    model_.upper.waiting_peak_bytes = std::max(estimate.peak_bytes, estimate.peak_upper_bytes);
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
  const CostsRequest& request_;
  StepModel model_;
  std::vector<Memo> memo_;
};

}  // namespace

Result<StepModel> build_step_model(const SegmentStore& store, const StepStructure& structure,
                                   const CostsRequest& request) {
  return Builder(store, structure, request).build();
}

}  // namespace pudica
