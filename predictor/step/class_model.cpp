#include "predictor/step/class_model.h"

#include <algorithm>
#include <cstdlib>

namespace pudica {
namespace {

std::uint8_t gradient_variant(std::uint8_t variant, bool gradients_present) {
  if (!gradients_present) return variant;
  return static_cast<std::uint8_t>(variant | SegmentKey::kGradientsPresent);
}

bool is_sure(const ModePair& pair) { return pair.fit && pair.identified; }
bool is_sure(const StoredEstimate& known) { return known.fit && known.estimate.identified; }

// By as much as the one differs from the other.
void move(SegmentEstimate& bytes, const SegmentEstimate& from, const SegmentEstimate& to) {
  const std::int64_t net = to.net_bytes - from.net_bytes;
  const std::int64_t peak = to.peak_bytes - from.peak_bytes;
  bytes.net_bytes += net;
  bytes.net_upper_bytes += net;
  bytes.peak_bytes = std::max<std::int64_t>(0, bytes.peak_bytes + peak);
  bytes.peak_upper_bytes = std::max(bytes.peak_upper_bytes + peak, bytes.peak_bytes);
}

// A line through the sums of two shapes says little of a third.
bool is_drawn(const ModePair& pair) {
  return !pair.identified && (pair.forward.basis == PredictionBasis::kLeastSquares ||
                              pair.backward.basis == PredictionBasis::kLeastSquares);
}

// Of what the layer leaves.
std::int64_t open_bytes(const ModePair& pair) {
  return pair.forward.net_upper_bytes - pair.forward.net_bytes + pair.backward.net_upper_bytes -
         pair.backward.net_bytes;
}

// Of pairs of two variants the one to believe.
int rank(const ModePair& pair) { return is_sure(pair) ? 2 : pair.fit ? 1 : 0; }

ModePair make_pair(const StoredEstimate& forward, const StoredEstimate& backward,
                   std::uint8_t variant) {
  ModePair out{forward.estimate, backward.estimate, variant};
  out.identified = forward.estimate.identified && backward.estimate.identified;
  out.fit = forward.fit && backward.fit;
  return out;
}

}  // namespace

std::optional<ModePair> ClassModel::exact(Mode mode, std::uint8_t variant) const {
  return pair(mode, variant, query_.gradients_present);
}

std::optional<ModePair> ClassModel::pair(Mode mode, std::uint8_t variant,
                                         bool gradients_present) const {
  const auto forward = this->forward(mode, variant);
  if (!forward) return std::nullopt;
  SegmentKey backward_key{SegmentKind::kBackward, query_.layer_class, mode,
                          gradient_variant(variant, gradients_present)};
  if (query_.early_free && store_.distinct_shapes(early_free(backward_key)) > 0) {
    backward_key = early_free(backward_key);
  }
  const auto backward = store_.predict(backward_key, query_.shape);
  auto own = backward ? std::optional(make_pair(*forward, *backward, variant)) : std::nullopt;
  if (own && !backward->estimate.identified)
    settle_net(*own, forward_key(mode, variant), backward_key);
  if (gradients_present && mode != Mode::full() && (!own || !is_sure(*own))) {
    if (auto derived = with_gradients(mode, variant)) return derived;
  }
  if (mode != Mode::keep()) return own;
  if (own && (backward->estimate.identified || !(own->fit || query_.derives_kept))) return own;
  const auto full = pair(Mode::full(), variant, gradients_present);
  const auto derived = full ? derived_keep(*forward, *full) : std::nullopt;
  if (!own || !derived) return own ? own : derived;
  // What few kept calls leave open, recomputed ones may have settled; what they have settled
  // themselves stands.
  if (!is_sure(*full)) return own;
  ModePair out = *derived;
  if (own->fit && open_bytes(*own) <= kNoticeableBytes) {
    out.backward.net_bytes = out.backward.net_upper_bytes = own->backward.net_bytes;
  }
  return out;
}

std::optional<StoredEstimate> ClassModel::forward(Mode mode, std::uint8_t variant) const {
  const auto own = forward_of(mode, variant, query_.casts_present);
  if (own && is_sure(*own)) return own;
  const auto derived = derived_forward(mode, variant);
  if (derived && (!own || is_sure(*derived) || !own->fit)) return derived;
  const auto other = forward_of(mode, variant, !query_.casts_present);
  return own && (own->fit || !other || !other->fit) ? own : other;
}

std::optional<StoredEstimate> ClassModel::forward_of(Mode mode, std::uint8_t variant,
                                                     bool casts_present) const {
  return store_.predict_with_unread(forward_key(mode, variant).with_casts(casts_present),
                                    query_.shape);
}

std::optional<StoredEstimate> ClassModel::derived_forward(Mode mode, std::uint8_t variant) const {
  auto other = forward_of(mode, variant, !query_.casts_present);
  if (!other) return std::nullopt;
  for (const Mode known : {Mode::keep(), Mode::full()}) {
    const auto as_asked = forward_of(known, variant, query_.casts_present);
    const auto not_so = forward_of(known, variant, !query_.casts_present);
    if (!as_asked || !not_so || !is_sure(*as_asked) || !is_sure(*not_so)) continue;
    move(other->estimate, not_so->estimate, as_asked->estimate);
    return other;
  }
  return std::nullopt;
}

// What a layer leaves in the end (gradients of parameters, what the head frees) seldom hangs on the
// shape, though both nets that it is the sum of do: that of the forward then tells the backward's,
// whose log is longer and has what goes by tiles. Nor is it the difference of two lines, which may
// be anything.
void ClassModel::settle_net(ModePair& pair, const SegmentKey& of_forward,
                            const SegmentKey& backward_key) const {
  const LeftTogether& left = store_.left_together(of_forward, backward_key);
  std::optional<std::int64_t> bytes;
  if (pair.forward.identified) bytes = left.everywhere(query_.shape);
  const bool is_settled = bytes.has_value();
  if (!bytes && is_drawn(pair)) bytes = left.behind(pair.forward.net_bytes, kNoticeableBytes);
  if (!bytes) return;
  SegmentEstimate& backward = pair.backward;
  backward.net_bytes = *bytes - pair.forward.net_bytes;
  backward.net_upper_bytes =
      is_settled ? backward.net_bytes : std::max(backward.net_bytes, backward.net_upper_bytes);
  backward.peak_bytes = std::max(backward.peak_bytes, backward.net_bytes);
  backward.peak_upper_bytes = std::max(backward.peak_upper_bytes, backward.peak_bytes);
}

// What it changes that gradients are there already (none is made, sums are) is the same in every
// mode: known of `full`, it need not be measured of the others, whose calls are rarer near the
// floor. Nothing is derived from what is not sure.
std::optional<ModePair> ClassModel::with_gradients(Mode mode, std::uint8_t variant) const {
  const auto sure = [&](Mode of, bool gradients_present) {
    auto found = pair(of, variant, gradients_present);
    if (found && !is_sure(*found)) found.reset();
    return found;
  };
  auto out = sure(mode, false);
  const auto without = sure(Mode::full(), false);
  const auto with = sure(Mode::full(), true);
  if (!out || !without || !with) return std::nullopt;
  move(out->backward, without->backward, with->backward);
  return out;
}

std::optional<ModePair> ClassModel::derived_keep(const StoredEstimate& forward,
                                                 const ModePair& full) const {
  const auto again = recompute(Mode::full());
  if (!again) return std::nullopt;
  // The recompute allocates the inventory first; the rest of the backward works on top of it. An
  // output that is part of it counts as the next layer's when it is kept, and as allocated again.
  const std::int64_t made_again = again->estimate.net_bytes;
  const std::int64_t output = std::max<std::int64_t>(0, full.forward.net_bytes);
  const std::int64_t inventory =
      made_again -
      std::clamp<std::int64_t>(made_again + output - forward.estimate.net_bytes, 0, output);
  SegmentEstimate backward = full.backward;
  backward.peak_bytes = std::max<std::int64_t>(0, backward.peak_bytes - inventory);
  backward.peak_upper_bytes = std::max<std::int64_t>(0, backward.peak_upper_bytes - inventory);
  backward.net_bytes = left_bytes(Mode::full(), full) +
                       measured_release(Mode::keep(), full.variant) - forward.estimate.net_bytes;
  backward.net_upper_bytes = backward.net_bytes;
  backward.seconds = std::max(0.0, backward.seconds - again->estimate.seconds);
  ModePair out = make_pair(forward, {backward, full.fit && again->fit}, full.variant);
  out.identified = out.identified && full.identified && again->estimate.identified;
  return out;
}

// Near the floor the first layers are those that are kept, and revoked, and the last is the one
// that is recomputed.
std::optional<ModePair> ClassModel::derived_across(std::uint8_t variant) const {
  const auto others_of = [&](Mode mode) {
    std::vector<std::uint8_t> variants{variant};
    for (const std::uint8_t other : store_.variants(query_.layer_class, mode)) {
      const bool same_group = SegmentKey::group_of(other) == SegmentKey::group_of(variant);
      if (other != variant && same_group) variants.push_back(other);
    }
    return variants;
  };
  for (const std::uint8_t recomputed : others_of(Mode::full())) {
    const auto full = exact(Mode::full(), recomputed);
    if (!full || !full->fit) continue;
    for (const std::uint8_t kept : others_of(Mode::keep())) {
      const auto forward = this->forward(Mode::keep(), kept);
      if (!forward || !forward->fit) continue;
      const auto derived = derived_keep(*forward, *full);
      if (derived && derived->fit) return derived;
    }
  }
  return std::nullopt;
}

std::optional<ModePair> ClassModel::best(Mode mode, std::uint8_t variant) const {
  std::optional<ModePair> own = exact(mode, variant);
  if (own && is_sure(*own)) return own;
  const std::optional<ModePair> other = stand_in(mode, variant);
  const bool known = (own && own->fit) || (other && other->fit);
  if (mode == Mode::keep() && query_.derives_kept && !known) {
    if (const auto derived = derived_across(variant)) return derived;
  }
  const bool is_better = other && (!own || rank(*other) > rank(*own));
  if (is_better && !(own && contradicts(*own, mode, other->variant))) return other;
  return own ? own : with_other_gradients(mode, variant);
}

std::optional<ModePair> ClassModel::stand_in(Mode mode, std::uint8_t variant) const {
  std::optional<ModePair> best;
  for (const std::uint8_t other : store_.variants(query_.layer_class, mode)) {
    if (other == variant) continue;
    auto candidate = exact(mode, other);
    if (candidate && (!best || rank(*candidate) > rank(*best))) best = candidate;
  }
  return best;
}

bool ClassModel::contradicts(const ModePair& own, Mode mode, std::uint8_t other) const {
  const std::uint8_t key_variant = gradient_variant(own.variant, query_.gradients_present);
  const auto at =
      store_.latest_shape({SegmentKind::kBackward, query_.layer_class, mode, key_variant});
  if (!at || !own.fit || mode == Mode::full()) return false;
  ClassQuery query = query_;
  query.shape = *at;
  const ClassModel there(store_, query);
  const auto difference_in = [&](Mode of) -> std::optional<std::int64_t> {
    const auto mine = there.exact(of, own.variant);
    const auto theirs = there.exact(of, other);
    if (!mine || !theirs || !is_sure(*mine) || !is_sure(*theirs)) return std::nullopt;
    return mine->remaining_bytes() - theirs->remaining_bytes();
  };
  const auto in_mode = difference_in(mode);
  // What it leaves beyond the other in every mode is made up for (residue).
  const auto made_up_for = difference_in(Mode::full());
  const bool is_open = !made_up_for && there.exact(Mode::full(), own.variant).has_value();
  if (!in_mode || is_open) return false;
  const std::int64_t wrong = std::abs(*in_mode - made_up_for.value_or(0));
  return wrong > std::max(kNoticeableBytes, open_bytes(own));
}

std::optional<ModePair> ClassModel::with_other_gradients(Mode mode, std::uint8_t variant) const {
  std::optional<ModePair> last = pair(mode, variant, !query_.gradients_present);
  for (const std::uint8_t other : store_.variants(query_.layer_class, mode)) {
    if (!last) last = pair(mode, other, !query_.gradients_present);
  }
  if (last) last->identified = last->fit = false;
  return last;
}

std::optional<std::int64_t> ClassModel::residue(std::uint8_t variant) const {
  const auto keep = best(Mode::keep(), variant);
  if (!keep || is_drawn(*keep)) {
    // A difference of two lines may be anything.
    const auto full = best(Mode::full(), variant);
    const bool is_another = full && keep && full->variant != keep->variant &&
                            contradicts(*keep, Mode::keep(), full->variant);
    if (full && (!keep || !is_drawn(*full)) && !is_another) return left_bytes(Mode::full(), *full);
    if (!keep) return std::nullopt;
  }
  std::int64_t bytes = left_bytes(Mode::keep(), *keep);
  if (keep->variant != variant) {
    const auto mine = exact(Mode::full(), variant);
    const auto theirs = exact(Mode::full(), keep->variant);
    if (mine && theirs && !is_drawn(*mine) && !is_drawn(*theirs)) {
      bytes += left_bytes(Mode::full(), *mine) - left_bytes(Mode::full(), *theirs);
    } else if (mine && mine->fit && !is_drawn(*mine) &&
               (variant & SegmentKey::kFirstOfClass) != 0) {
      // It leaves what its siblings do not: they tell nothing.
      return left_bytes(Mode::full(), *mine);
    }
  }
  return bytes;
}

std::int64_t ClassModel::measured_release(Mode mode, std::uint8_t variant) const {
  return store_
      .released_bytes(query_.layer_class, mode, variant, query_.shape, query_.casts_present)
      .value_or(0);
}

std::int64_t ClassModel::released(Mode mode, const ModePair& pair, std::int64_t residue) const {
  const auto measured = store_.released_bytes(query_.layer_class, mode, pair.variant, query_.shape,
                                              query_.casts_present);
  if (measured) return *measured;
  if (mode == Mode::keep()) return 0;
  return std::max<std::int64_t>(0, pair.remaining_bytes() - residue);
}

std::optional<StoredEstimate> ClassModel::recompute(Mode mode) const {
  return store_.predict({SegmentKind::kRecompute, query_.layer_class, mode, 0}, query_.shape);
}

}  // namespace pudica
