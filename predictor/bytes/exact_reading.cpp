// How the sizes of a segment's events are read from its logs.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "predictor/bytes/exact_model.h"
#include "predictor/bytes/share_fit.h"
#include "predictor/bytes/tiled_fit.h"

namespace pudica::predictor {
namespace {

// Where sizes are rounded up, blocks of unlike forms can share theirs at all shapes seen; taking
// one for the other is wrong by a few granules.
constexpr std::int64_t kRoundingSlackGranules = 8;
constexpr std::size_t kEnoughRounded = 5;  // distinct sizes
// A search that is given up: of a model with many sizes that follow no form, or many dimensions.
constexpr std::size_t kMostVainSplits = 16;
constexpr std::size_t kMostColumnsToSplit = 12;  // three dimensions
constexpr std::size_t kFewLogs = 3;    // all that may be known of a size is not known of so few
constexpr std::size_t kManyLogs = 16;  // and of so many it is

struct SizesHash {
  std::size_t operator()(const std::vector<std::int64_t>& sizes) const {
    std::uint64_t state = 0x9e3779b97f4a7c15ULL;
    for (const std::int64_t size : sizes) {
      state = (state ^ static_cast<std::uint64_t>(size)) * 0xff51afd7ed558ccdULL;
      state ^= state >> 32U;
    }
    return static_cast<std::size_t>(state);
  }
};

// One log: the first volume that divides the size comes before everything else.
void prefer_volume(std::vector<Form>& forms, const MonomialBasis& basis) {
  const auto linear = std::ranges::find_if(forms, [&](const Form& form) {
    return form.monomial >= 1 && form.monomial <= basis.linear_count() && form.denominator == 1;
  });
  if (linear != forms.end()) std::rotate(forms.begin(), linear, linear + 1);
}

// Frees with nothing allocated between them, the largest first. False: they were.
bool order_frees(std::vector<std::int64_t>& deltas) {
  bool changed = false;
  for (auto begin = deltas.begin(); begin != deltas.end();) {
    const bool frees = *begin < 0;
    const auto end = std::find_if(begin, deltas.end(),
                                  [frees](std::int64_t delta) { return (delta < 0) != frees; });
    if (frees && !std::is_sorted(begin, end)) {
      std::sort(begin, end);
      changed = true;
    }
    begin = end;
  }
  return changed;
}

}  // namespace

// What neither a product nor a sum of two explains.
void ExactModel::read_odd_size(const SizeSamples& samples, Reading& reading, EventSize& size) {
  const MonomialBasis& basis = *reading.options.basis;
  if (!reading.counted) reading.counted.emplace(samples, basis);
  size.forms = reading.counted->match(samples);
  if (!size.forms.empty()) {
    // Rounded sizes are fitted by chance, of so many counts.
    const std::size_t distinct = std::set(samples.sizes.begin(), samples.sizes.end()).size();
    size.is_weak = samples.granularity_bytes > 1 && distinct < kEnoughRounded;
    return;
  }
  size.forms = match_shares(samples);
  if (!size.forms.empty()) return;
  TiledForms capped = match_capped(samples, basis.tilings(), basis.batch());
  size.forms = std::move(capped.forms);
  size.is_weak = !size.forms.empty() && capped.evidence < TiledForms::kEnough;
  size.is_at_rest = capped.at_rest >= TiledForms::kEnough;
  if (!size.forms.empty() || reading.vain_splits > kMostVainSplits) return;
  if (samples.columns <= kMostColumnsToSplit) size.split = SplitForms::match(samples, basis);
  if (!size.split) ++reading.vain_splits;
}

// Whether the size is none that more logs could tell more of, as long as they agree. Where sizes
// are rounded up, other sums of two terms may be found by way of other logs, beside all but
// products.
bool ExactModel::is_read(const EventSize& size, std::size_t logs) {
  const auto may_have_rivals = [](const Form& form) {
    const bool is_rounded = form.granularity_bytes > 1 && form.denominator == 1;
    const bool is_product = form.second == Form::kNoTerm && form.tiled == Form::kNoTerm &&
                            form.count.dimension == Count::kNone && !form.is_capped();
    return is_rounded && !is_product;
  };
  if (size.forms.empty() || size.is_weak || size.split) return false;
  if (size.forms.size() > 1 && logs < kFewLogs) return false;
  return std::ranges::none_of(size.forms, may_have_rivals);
}

bool ExactModel::agrees(const EventSize& size, std::span<const std::int64_t> monomials,
                        std::int64_t bytes) {
  return std::ranges::all_of(size.forms, [monomials, bytes](const Form& form) {
    return form.evaluate(monomials) == bytes;
  });
}

ExactModel::EventSize ExactModel::read_size(const SizeSamples& samples,
                                            std::span<const EventLog> logs, Reading& reading,
                                            const EventSize* before) {
  EventSize size;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    if (samples.sizes[i] <= size.largest_bytes) continue;
    size.largest_bytes = samples.sizes[i];
    size.volume_of_largest = logs[i].volume;
  }
  if (before != nullptr && stays(*before, samples, reading)) {
    size.forms = before->forms;
    return size;
  }
  if (before != nullptr && is_vain(*before, logs, reading)) {
    size.unsearched = before->unsearched + logs.size() - reading.before.logs;
  } else {
    search_forms(samples, logs, reading, size);
  }
  if (size.forms.empty() && !size.split) {
    const auto granularity = static_cast<double>(reading.options.granularity_bytes);
    size.fit = LinearFit::fit({.monomials = samples.monomials,
                               .columns = samples.columns,
                               .values = samples.sizes,
                               .tolerance = granularity,
                               .wants_rivals = true});
  }
  return size;
}

// The logs that are new leave what was read as it was.
bool ExactModel::stays(const EventSize& before, const SizeSamples& samples,
                       const Reading& reading) {
  if (!is_read(before, reading.before.model->logs_)) return false;
  for (std::size_t i = reading.before.logs; i < samples.sizes.size(); ++i) {
    if (!agrees(before, samples.row(i), samples.sizes[i])) return false;
  }
  return true;
}

// What followed no form will follow none with a log more, or without one.
bool ExactModel::is_vain(const EventSize& before, std::span<const EventLog> logs,
                         const Reading& reading) {
  const std::size_t fresh = before.unsearched + logs.size() - reading.before.logs;
  const std::size_t gone = reading.before.model->logs_ - reading.before.logs;
  return before.fit && logs.size() >= kManyLogs && 4 * std::max(fresh, gone) < logs.size();
}

void ExactModel::search_forms(const SizeSamples& samples, std::span<const EventLog> logs,
                              Reading& reading, EventSize& size) {
  const ExactModelOptions& options = reading.options;
  size.forms = match_one_term(samples);
  if (logs.size() == 1) {
    if (options.single_shape == SingleShapeRule::kConstant) size.forms.resize(1);
    if (options.single_shape == SingleShapeRule::kProportional) {
      prefer_volume(size.forms, *options.basis);
    }
    return;
  }
  if (size.forms.empty()) {
    TiledForms tiled = match_tiled(samples, options.basis->tilings());
    const std::vector<Form> two_terms = match_two_terms(samples);
    size.is_weak = tiled.forms.empty() ? !two_terms.empty() && logs.size() == 2
                                       : tiled.evidence < TiledForms::kEnough;
    size.forms = std::move(tiled.forms);
    size.forms.insert(size.forms.end(), two_terms.begin(), two_terms.end());
    if (size.forms.empty()) read_odd_size(samples, reading, size);
  }
  for (std::size_t i = 0; size.is_weak && i < logs.size(); ++i) {
    const bool ends = size.is_at_rest && samples.sizes[i] == size.largest_bytes;
    size.seen.emplace_back(samples.sizes[i],
                           ends ? std::numeric_limits<double>::infinity() : logs[i].volume);
  }
}

ExactModel ExactModel::build(std::span<const EventLog> logs, const ExactModelOptions& options,
                             const Read& before) {
  const Read none{nullptr, 0};
  const bool continues = before.model != nullptr && before.model->may_be_continued(logs);
  const bool was_ordered = continues && before.model->frees_are_ordered_;
  std::vector<std::vector<std::int64_t>> ordered;
  std::vector<EventLog> others(logs.begin(), logs.end());
  const auto order = [&] {
    bool changed = false;
    for (const EventLog& log : logs) {
      ordered.emplace_back(log.deltas.begin(), log.deltas.end());
      changed = order_frees(ordered.back()) || changed;
    }
    for (std::size_t i = 0; i < others.size(); ++i) others[i].deltas = ordered[i];
    return changed;
  };
  if (was_ordered) {
    order();
    ExactModel other = read_events(others, options, before);
    other.frees_are_ordered_ = true;
    if (other.unexplained_ <= before.model->unexplained_) return other;
  }
  ExactModel model = read_events(logs, options, continues && !was_ordered ? before : none);
  if (logs.size() < 2 || model.unexplained_ == 0) return model;
  if (ordered.empty() && !order()) return model;
  ExactModel other = read_events(others, options, none);
  other.frees_are_ordered_ = true;
  return other.unexplained_ < model.unexplained_ ? other : model;
}

// Of fewer logs a size may look like another than it is.
bool ExactModel::may_be_continued(std::span<const EventLog> logs) const {
  return logs_ >= kFewLogs && program_.size() == logs.front().deltas.size();
}

ExactModel ExactModel::read_events(std::span<const EventLog> logs, const ExactModelOptions& options,
                                   const Read& before) {
  ExactModel model;
  model.columns_ = options.basis->size();
  model.logs_ = logs.size();
  if (options.granularity_bytes > 1) {
    model.rounding_slack_bytes_ = kRoundingSlackGranules * options.granularity_bytes;
  }
  std::vector<std::int64_t> monomials;
  for (const EventLog& log : logs) {
    monomials.insert(monomials.end(), log.monomials.begin(), log.monomials.end());
  }
  SizeSamples samples{.monomials = monomials,
                      .columns = model.columns_,
                      .sizes = {},
                      .granularity_bytes = options.granularity_bytes};
  Reading reading{.options = options, .before = before, .counted = std::nullopt};
  // Events that are of one size in every log, by those sizes: by the size that they were of in the
  // logs before, and those in the others.
  std::unordered_map<std::vector<std::int64_t>, std::uint32_t, SizesHash> known;
  std::vector<std::int64_t> sizes(logs.size());
  std::vector<std::int64_t> identity;
  const std::size_t events = logs.front().deltas.size();
  model.program_.reserve(events);
  for (std::size_t event = 0; event < events; ++event) {
    identity.clear();
    const EventSize* of_before = nullptr;
    if (before.model != nullptr) {
      identity.push_back(before.model->program_[event] / kRoles);
      of_before = &before.model->sizes_[before.model->program_[event] / kRoles];
    }
    for (std::size_t i = before.logs; i < logs.size(); ++i) {
      identity.push_back(std::abs(logs[i].deltas[event]));
    }
    const auto next = static_cast<std::uint32_t>(model.sizes_.size());
    const auto [entry, is_new] = known.try_emplace(identity, next);
    if (is_new) {
      for (std::size_t i = 0; i < logs.size(); ++i) sizes[i] = std::abs(logs[i].deltas[event]);
      samples.sizes = sizes;
      model.add_size(read_size(samples, logs, reading, of_before));
    }
    model.add_event(entry->second, logs.front().deltas[event]);
  }
  model.own_blocks_ = {};
  model.scratch_.resize(model.sizes_.size() * kRoles);
  return model;
}

void ExactModel::add_size(EventSize size) {
  const bool is_one = size.forms.size() == 1 && !size.forms.front().is_rounded_sum();
  if (!is_one || size.is_weak) doubtful_.push_back(static_cast<std::uint32_t>(sizes_.size()));
  interpolates_ = interpolates_ || size.fit.has_value();
  if (size.fit || size.is_weak) ++unexplained_;
  sizes_.push_back(std::move(size));
}

void ExactModel::add_event(std::uint32_t size, std::int64_t sign) {
  own_blocks_.resize(sizes_.size());
  Role role = Role::kAllocate;
  if (sign > 0) {
    ++own_blocks_[size];
  } else if (own_blocks_[size] > 0) {
    --own_blocks_[size];
    role = Role::kFreeOwn;
  } else {
    role = Role::kFreeOlder;
  }
  program_.push_back(size * kRoles + static_cast<std::uint32_t>(role));
}

bool ExactModel::confirms(const EventLog& log) const {
  if (log.deltas.size() != program_.size()) return false;
  for (std::uint32_t i = 0; i < sizes_.size(); ++i) {
    if (!is_read(sizes_[i], logs_)) return false;
    const std::int64_t bytes = point(sizes_[i], log.monomials);
    if (!agrees(sizes_[i], log.monomials, bytes)) return false;
    set_size(i, {bytes, bytes});
  }
  std::vector<std::int64_t> ordered;
  std::span<const std::int64_t> deltas = log.deltas;
  if (frees_are_ordered_) {
    ordered.assign(deltas.begin(), deltas.end());
    order_frees(ordered);
    deltas = ordered;
  }
  for (std::size_t i = 0; i < program_.size(); ++i) {
    if (scratch_[program_[i]] != deltas[i]) return false;
  }
  return true;
}

}  // namespace pudica::predictor
