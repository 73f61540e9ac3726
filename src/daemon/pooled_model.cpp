#include "daemon/pooled_model.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <utility>

#include "base/log.h"
#include "base/safe_text.h"
#include "daemon/model_agreement.h"
#include "pudica/peak_model.h"
#include "pudica/step_learner.h"

namespace pudica::daemon {
namespace {

constexpr std::size_t kMostSources = 256;
constexpr std::size_t kMostLayers = 4096;
constexpr std::size_t kMostSegments = 65536;
constexpr std::size_t kMostDeltas = 65536;
// Far above any device; sums of a whole step still fit 64 bits.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 46U;
// Misfits in a row that make it another model; twice as many after each time.
constexpr std::int32_t kMisfitsOfAnotherModel = 2;
constexpr std::int32_t kMostMisfitsNeeded = 1 << 16;
constexpr std::size_t kMostMisfitsKept = 4;
// Differences below this are rounding of allocators, not another model.
constexpr std::int32_t kMaxSkippedOptimizers = 3;
// Runs whose own models contradict the known one.
constexpr std::size_t kRunsThatTell = 2;
constexpr std::size_t kMostDropped = 16;
constexpr std::uint64_t kForeignPlan = std::numeric_limits<std::uint64_t>::max();

// Tells states from each other, not forgers from their aim: FNV-1a, as its authors give it
// (isthe.com/chongo/tech/comp/fnv), which unlike std::hash is one number in every build.
std::uint64_t mark_of(std::string_view state) {
  std::uint64_t mark = 0xcbf29ce484222325ULL;
  for (const char character : state) {
    mark = (mark ^ static_cast<unsigned char>(character)) * 0x100000001b3ULL;
  }
  return mark;
}

Knowledge knowledge_of(const Controller& controller) {
  Knowledge out;
  const ControllerSnapshot snapshot = controller.snapshot();
  out.recorded_steps = snapshot.recorded_steps;
  for (const LearnedQuantity& learned : snapshot.learned) {
    if (learned.quantity != "net_bytes") continue;
    out.distinct_shapes = std::max(out.distinct_shapes, learned.distinct_shapes);
    out.samples += learned.distinct_shapes;
  }
  return out;
}

bool is_optimizer(const SegmentObservation& item) {
  return item.key.kind == SegmentKind::kOptimizer;
}

StepContext context_of(const StepRecord& record) {
  StepContext context{record.key, record.profiles->base_bytes, record.budget_bytes,
                      record.profiles->gradients_present};
  context.casts_present = record.profiles->casts_present;
  return context;
}

StepOutcome outcome_of(const StepRecord& record) {
  Plan plan;
  plan.id = kForeignPlan;  // of nobody here: not to be judged as the controller's own
  plan.shape = record.key;
  plan.modes = record.modes;
  StepOutcome out;
  out.context = context_of(record);
  out.plan = std::make_shared<const Plan>(std::move(plan));
  out.peak_bytes = record.measured_bytes;
  out.seconds = record.seconds;
  out.revocations = record.revocations;
  out.overrun = record.overrun;
  out.segments = record.profiles->segments;
  return out;
}

Error refused(const StepRecord& record, const std::string& what) {
  return invalid_argument("step " + std::to_string(record.step) + " of '" + record.run +
                          "': " + what);
}

bool is_sane(Bytes bytes) { return bytes >= Bytes(0) && bytes.count() <= kMostBytes; }

bool is_sane(const SegmentSample& sample) {
  const auto within = [](std::int64_t bytes) { return std::abs(bytes) <= kMostBytes; };
  return sample.net_bytes >= -kMostBytes && sample.net_bytes <= sample.peak_bytes &&
         sample.peak_bytes >= 0 && sample.peak_bytes <= kMostBytes &&
         sample.deltas.size() <= kMostDeltas && std::isfinite(sample.seconds) &&
         sample.seconds >= 0 && std::ranges::all_of(sample.deltas, [&within](std::int64_t delta) {
           return delta != std::numeric_limits<std::int64_t>::min() && within(delta);
         });
}

Result<void> check(const StepRecord& record) {
  const StepProfiles& profiles = *record.profiles;
  if (record.key.size() == 0) return refused(record, "no shape");
  if (!is_sane(record.measured_bytes) || !is_sane(record.budget_bytes) ||
      !is_sane(profiles.base_bytes)) {
    return refused(record, "bytes out of bounds, expected 0 to " + std::to_string(kMostBytes));
  }
  const std::size_t layers = profiles.structure.layers.size();
  if (layers == 0 || layers > kMostLayers || profiles.structure.class_names.size() > layers) {
    return refused(record, std::to_string(layers) + " layers of " +
                               std::to_string(profiles.structure.class_names.size()) +
                               " classes, expected 1 to " + std::to_string(kMostLayers) +
                               " and no more classes than layers");
  }
  if (profiles.segments.size() > kMostSegments) {
    return refused(record, std::to_string(profiles.segments.size()) +
                               " segments, expected at most " + std::to_string(kMostSegments));
  }
  for (const SegmentObservation& item : profiles.segments) {
    if (!is_sane(item.sample)) return refused(record, "bad sample of " + to_string(item.key));
  }
  return {};
}

}  // namespace

Result<Knowledge> knowledge_of(const std::string& state, const std::string& fingerprint) {
  try {
    const auto controller = make_controller({});
    auto restored = controller->restore(state, fingerprint);
    if (!restored) return restored.error();
    return knowledge_of(*controller);
  } catch (const std::exception& error) {
    return Error{ErrorCode::kCorrupt, std::string("learned state: ") + error.what()};
  }
}

PooledModel::PooledModel(std::string fingerprint, ControllerOptions options)
    : fingerprint_(std::move(fingerprint)),
      options_(std::move(options)),
      misfits_needed_(kMisfitsOfAnotherModel) {
  // It never plans for anyone: no end of its warm-up, one cached plan.
  options_.warmup_max_steps = std::int64_t{1} << 40U;
  options_.cache.capacity = 1;
  options_.trusts_restored_states = true;  // two misfits tell here
  controller_ = make_controller(options_);
}

Result<bool> PooledModel::observe(const std::string& source_name, const StepRecord& record) {
  if (!record.profiles || record.profiles->segments.empty()) {
    const auto known = sources_.find(source_name);
    return known == sources_.end() ? Result<bool>(false) : settle_unrecorded(known->second, record);
  }
  auto sane = check(record);
  if (!sane) return sane.error();
  Source& source = source_of(source_name);
  const std::int64_t samples_before = knowledge_.samples;
  bool anew = false;
  try {
    const std::vector<StepRecord> misfits = add_misfit(source, record);
    if (!misfits.empty()) {
      log_info("model no longer fits, it is learned anew: fingerprint=" + log_value(fingerprint_));
      start_anew();
      for (std::size_t i = 0; i + 1 < misfits.size(); ++i) replay(misfits[i]);
      anew = true;
    }
    settle_optimizer(source, record);
    replay(record);
    StepRecord held = record;
    std::erase_if(held.profiles->segments,
                  [](const SegmentObservation& item) { return !is_optimizer(item); });
    source.optimizer.reset();
    if (!held.profiles->segments.empty()) {
      const bool present = held.profiles->gradients_present;
      source.optimizer = HeldOptimizer{std::move(held), present};
    }
  } catch (const std::exception& error) {
    auto back = conclude(samples_before);
    return back ? Error{ErrorCode::kUnavailable, error.what()} : back.error();
  }
  return conclude(anew ? -1 : samples_before);
}

PooledModel::Source& PooledModel::source_of(const std::string& name) {
  Source& source = sources_[name];
  source.used = ++uses_;
  if (sources_.size() > kMostSources) {
    const auto oldest =
        std::ranges::min_element(sources_, {}, [](const auto& entry) { return entry.second.used; });
    sources_.erase(oldest);
  }
  return sources_[name];
}

// The optimizer's sample goes in once the same process's next step tells what it left behind.
void PooledModel::settle_optimizer(Source& source, const StepRecord& next) {
  if (!source.optimizer) return;
  const HeldOptimizer held = *std::exchange(source.optimizer, std::nullopt);
  if (next.step <= held.record.step) return;  // the process began anew
  const bool adjacent = next.step == held.record.step + 1;
  const bool comparable = held.gradients_present == next.profiles->gradients_present;
  if (!adjacent && !comparable) return;
  Bytes left = next.profiles->base_bytes - held.record.profiles->base_bytes;
  const SegmentSample& sample = held.record.profiles->segments.back().sample;
  const std::int64_t peak = sample.peak_bytes;
  if (held.record.profiles->casts_present) left = std::max(left, Bytes(sample.net_bytes));
  if (left > Bytes(0) && left.count() >= peak / 4 &&
      source.skipped_optimizers < kMaxSkippedOptimizers) {
    ++source.skipped_optimizers;  // the controller counts such steps, but of one process only
    source.has_optimizer_state = comparable;
    return;
  }
  source.skipped_optimizers = 0;
  source.has_optimizer_state = true;
  give_optimizer(held.record, next.profiles->base_bytes);
}

// What a step left behind is not known when the next one is not recorded. Once a process has its
// optimizer's state, a step without accumulation leaves nothing.
Result<bool> PooledModel::settle_unrecorded(Source& source, const StepRecord& next) {
  if (!source.optimizer) return false;
  const HeldOptimizer held = *std::exchange(source.optimizer, std::nullopt);
  const bool settled = source.has_optimizer_state && !held.gradients_present;
  if (!settled || next.step <= held.record.step) return false;
  const std::int64_t samples_before = knowledge_.samples;
  give_optimizer(held.record, held.record.profiles->base_bytes);
  return conclude(samples_before);
}

void PooledModel::give_optimizer(const StepRecord& record, Bytes next_base_bytes) {
  StepContext context = context_of(record);
  controller_->begin_step(context);
  controller_->end_step(outcome_of(record));
  context.base_bytes = next_base_bytes;
  controller_->begin_step(context);
}

bool PooledModel::take_optimizer_of(const Controller& other) {
  const auto has_optimizer = [](const Controller& controller) {
    const ControllerSnapshot snapshot = controller.snapshot();
    return std::ranges::any_of(snapshot.learned, [](const LearnedQuantity& learned) {
      return learned.segment.kind == SegmentKind::kOptimizer;
    });
  };
  if (!last_ || has_optimizer(*controller_) || !has_optimizer(other)) return false;
  StepRecord record = *last_;
  record.profiles->gradients_present = false;
  const auto costs = other.costs(context_of(record));
  if (!costs || costs->optimizer_peak_bytes > kMostBytes) return false;
  SegmentObservation optimizer;
  optimizer.key.kind = SegmentKind::kOptimizer;
  optimizer.sample.peak_bytes = std::max<std::int64_t>(0, costs->optimizer_peak_bytes);
  record.profiles->segments = {optimizer};
  give_optimizer(record, record.profiles->base_bytes);
  return true;
}

void PooledModel::replay(const StepRecord& record) {
  if (!(record.profiles->structure == structure_)) {
    structure_ = record.profiles->structure;
    controller_->on_structure(structure_);
  }
  controller_->begin_step(context_of(record));
  StepOutcome outcome = outcome_of(record);
  std::erase_if(outcome.segments, is_optimizer);
  controller_->end_step(outcome);
  last_ = record;
  last_->profiles->segments.clear();
}

std::vector<StepRecord> PooledModel::add_misfit(Source& source, const StepRecord& record) {
  if (!is_misfit(record)) {
    source.misfits_in_a_row = 0;
    source.misfits.clear();
    return {};
  }
  source.misfits.push_back(record);
  if (source.misfits.size() > kMostMisfitsKept) source.misfits.erase(source.misfits.begin());
  if (++source.misfits_in_a_row < misfits_needed_) return {};
  // Where it does not help, as with sizes that depend on the data, it must not happen for ever.
  misfits_needed_ = std::min(2 * misfits_needed_, kMostMisfitsNeeded);
  return std::exchange(source.misfits, {});
}

bool PooledModel::is_misfit(const StepRecord& record) const {
  const StepProfiles& profiles = *record.profiles;
  if (!profiles.structure.is_alike(structure_)) return false;  // on_structure() deals with it
  const auto estimate = controller_->estimate(record.key, Bytes(0));
  const auto costs = controller_->costs(context_of(record));
  if (!estimate || !estimate->identified || !costs) return false;
  const double share = options_.warmup_fit_error;
  return std::ranges::any_of(profiles.segments, [&costs, share](const SegmentObservation& item) {
    const auto layer = static_cast<std::size_t>(item.layer);
    if (item.key.kind != SegmentKind::kForward || item.layer < 0) return false;
    if (layer >= costs->layers.size()) return false;
    const auto& modes = costs->layers[layer].modes;
    const auto mode = std::ranges::find(modes, item.key.mode, &LayerModeCosts::mode);
    if (mode == modes.end()) return false;
    const std::int64_t off = std::max(std::abs(mode->forward_net_bytes - item.sample.net_bytes),
                                      std::abs(mode->forward_peak_bytes - item.sample.peak_bytes));
    return off > kNoticeableBytes &&
           static_cast<double>(off) > share * static_cast<double>(item.sample.peak_bytes);
  });
}

void PooledModel::start_anew() {
  controller_ = make_controller(options_);
  structure_ = {};
  for (auto& [name, source] : sources_)
    source = Source{{}, 0, source.has_optimizer_state, 0, {}, source.used};
}

Result<bool> PooledModel::conclude(std::int64_t samples_before) {
  if (controller_->state() == ControllerState::kStandingDown) {
    const std::string reason = controller_->snapshot().state_reason;
    start_anew();
    if (!state_.empty()) {
      auto restored = controller_->restore(state_, fingerprint_);
      if (!restored) state_.clear();
      structure_ = controller_->snapshot().structure;
    }
    return invalid_argument("model '" + fingerprint_ + "': a record cannot be learned: " + reason);
  }
  knowledge_ = knowledge_of(*controller_);
  if (knowledge_.recorded_steps > 0) state_ = controller_->serialize(fingerprint_);
  return knowledge_.samples > samples_before;
}

// Two runs that say the same: neither brought the state that is known, or it was dropped by both.
bool PooledModel::contradicts(const Controller& candidate, std::string_view source) {
  if (state_.empty()) return false;
  const Agreement agreement = compare(*controller_, candidate);
  if (agreement == Agreement::kAgrees) contradicted_by_.clear();
  if (agreement != Agreement::kContradicts) return false;
  contradicted_by_.emplace(source);
  return true;
}

void PooledModel::drop() {
  log_info("model dropped, two runs measured something else: fingerprint=" +
           log_value(fingerprint_));
  if (dropped_.size() >= kMostDropped) dropped_.erase(dropped_.begin());
  dropped_.push_back(mark_of(state_));
  ++drops_;
  start_anew();
  state_.clear();
  knowledge_ = {};
  last_.reset();
  contradicted_by_.clear();
}

void PooledModel::set_dropped(std::vector<std::uint64_t> marks) {
  if (marks.size() > kMostDropped) {
    marks.erase(marks.begin(), marks.end() - static_cast<std::ptrdiff_t>(kMostDropped));
  }
  dropped_ = std::move(marks);
}

Result<bool> PooledModel::adopt(const std::string& state, std::string_view source) {
  if (std::ranges::find(dropped_, mark_of(state)) != dropped_.end()) {
    return invalid_argument(
        "learned state: it was dropped, since two runs measured something else");
  }
  try {
    auto candidate = make_controller(options_);
    auto restored = candidate->restore(state, fingerprint_);
    if (!restored) return restored.error();
    const Knowledge theirs = knowledge_of(*candidate);
    StepStructure structure = candidate->snapshot().structure;
    if (structure.layers.empty() || structure.layers.size() > kMostLayers) {
      return Error{ErrorCode::kCorrupt,
                   "learned state: " + std::to_string(structure.layers.size()) +
                       " layers, expected 1 to " + std::to_string(kMostLayers)};
    }
    if (contradicts(*candidate, source)) {
      if (contradicted_by_.size() < kRunsThatTell) return false;
      drop();
    }
    if (!theirs.more_than(knowledge_)) {
      if (!take_optimizer_of(*candidate)) return false;
      return conclude(knowledge_.samples);
    }
    const bool learned = theirs.samples > knowledge_.samples;
    controller_ = std::move(candidate);
    structure_ = std::move(structure);
    knowledge_ = theirs;
    state_ = state;
    return learned;
  } catch (const std::exception& error) {
    return Error{ErrorCode::kCorrupt, std::string("learned state: ") + error.what()};
  }
}

}  // namespace pudica::daemon
