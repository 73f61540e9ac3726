#include "daemon/model_pool.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "inspect/json_values.h"

namespace pudica::daemon {
namespace {

constexpr std::size_t kMostSourcesNamed = 4096;
constexpr std::size_t kLongestFingerprint = 4096;
constexpr std::size_t kMostTeachers = 8;

std::string system_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), length};
}

Result<void> check_fingerprint(const std::string& fingerprint) {
  if (!fingerprint.empty() && fingerprint.size() <= kLongestFingerprint) return {};
  return invalid_argument("fingerprint of " + std::to_string(fingerprint.size()) +
                          " characters, expected 1 to " + std::to_string(kLongestFingerprint));
}

}  // namespace

ModelPool::ModelPool(ModelPoolOptions options) : options_(std::move(options)) {
  options_.max_models = std::max<std::size_t>(options_.max_models, 1);
  if (!options_.now) options_.now = system_time;
}

ModelPool::~ModelPool() = default;

Result<bool> ModelPool::observe(const std::string& fingerprint, const StepRecord& record,
                                std::string_view source) {
  auto valid = check_fingerprint(fingerprint);
  if (!valid) return valid.error();
  if (!record.profiles && version(fingerprint) == 0) return false;
  const std::string name(source.empty() ? std::string_view(record.run) : source);
  return change(fingerprint, name, [&](PooledModel& model) { return model.observe(name, record); });
}

Result<bool> ModelPool::adopt(const std::string& fingerprint, const std::string& state,
                              std::string_view source) {
  auto valid = check_fingerprint(fingerprint);
  if (!valid) return valid.error();
  if (state.size() > options_.max_state_bytes) {
    return Error{ErrorCode::kOverBudget, "learned state of " + std::to_string(state.size()) +
                                             " bytes, expected at most " +
                                             std::to_string(options_.max_state_bytes)};
  }
  return change(fingerprint, source,
                [&](PooledModel& model) { return model.adopt(state, source); });
}

Result<void> ModelPool::load(const ModelStats& stats, const std::string& state) {
  auto adopted = adopt(stats.fingerprint, state);
  if (!adopted) return adopted.error();
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(stats.fingerprint);
  if (found == models_.end()) return {};
  found->second.runs = std::max(found->second.runs, stats.runs);
  if (!stats.updated_at.empty()) found->second.updated_at = stats.updated_at;
  found->second.taught_by = stats.taught_by;
  found->second.model.set_dropped(stats.dropped);
  return {};
}

// Those whose model was dropped taught nothing that is left.
void ModelPool::note_teacher(Entry& entry, std::string_view source) {
  if (std::exchange(entry.drops, entry.model.drops()) != entry.drops) entry.taught_by.clear();
  if (source.empty()) return;
  std::erase(entry.taught_by, source);
  if (entry.taught_by.size() >= kMostTeachers) entry.taught_by.erase(entry.taught_by.begin());
  entry.taught_by.emplace_back(source);
}

// A model is changed where it stands: an error leaves it as it was. One that had learned nothing
// before does not stay for an error's sake.
Result<bool> ModelPool::change(const std::string& fingerprint, std::string_view source,
                               const Change& what) {
  const std::lock_guard lock(mutex_);
  auto found = models_.find(fingerprint);
  if (found == models_.end()) {
    found = models_.emplace(fingerprint, PooledModel(fingerprint, options_.controller)).first;
  }
  Entry& entry = found->second;
  const std::string before = entry.model.state();  // a copy: to go back to
  auto changed = what(entry.model);
  if (changed && entry.model.state().size() > options_.max_state_bytes) {
    std::vector<std::uint64_t> dropped = entry.model.dropped();
    entry.model = PooledModel(fingerprint, options_.controller);
    entry.model.set_dropped(std::move(dropped));
    if (!before.empty()) (void)entry.model.adopt(before, {}).has_value();
    changed =
        Error{ErrorCode::kOverBudget, "model '" + fingerprint + "': its state would exceed " +
                                          std::to_string(options_.max_state_bytes) + " bytes"};
  }
  if (!changed) {
    if (entry.model.state().empty() && entry.version == 0) models_.erase(found);
    return changed;
  }
  entry.used = ++uses_;
  if (*changed) ++entry.version;
  if (entry.model.state() != before) {
    entry.updated_at = options_.now();
    note_teacher(entry, source);
  }
  if (!source.empty() && entry.sources.size() < kMostSourcesNamed &&
      entry.sources.emplace(source).second) {
    ++entry.runs;
  }
  if (models_.size() > options_.max_models) {
    const auto oldest =
        std::ranges::min_element(models_, {}, [](const auto& item) { return item.second.used; });
    models_.erase(oldest);
  }
  return changed;
}

bool ModelPool::remove(const std::string& fingerprint) {
  const std::lock_guard lock(mutex_);
  return models_.erase(fingerprint) > 0;
}

std::optional<std::string> ModelPool::state(const std::string& fingerprint) {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(fingerprint);
  if (found == models_.end() || found->second.model.state().empty()) return std::nullopt;
  found->second.used = ++uses_;
  return found->second.model.state();
}

std::uint64_t ModelPool::version(const std::string& fingerprint) const {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(fingerprint);
  return found == models_.end() ? 0 : found->second.version;
}

std::optional<ModelStats> ModelPool::stats(const std::string& fingerprint) const {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(fingerprint);
  if (found == models_.end()) return std::nullopt;
  return stats_of(fingerprint, found->second);
}

std::vector<ModelStats> ModelPool::stats() const {
  const std::lock_guard lock(mutex_);
  std::vector<ModelStats> out;
  for (const auto& [fingerprint, entry] : models_) {
    if (!entry.model.state().empty()) out.push_back(stats_of(fingerprint, entry));
  }
  return out;
}

ModelStats ModelPool::stats_of(const std::string& fingerprint, const Entry& entry) const {
  const Knowledge& known = entry.model.knowledge();
  return {fingerprint,          static_cast<std::int64_t>(entry.model.state().size()),
          known.recorded_steps, known.distinct_shapes,
          entry.runs,           entry.updated_at,
          entry.taught_by,      entry.model.dropped()};
}

std::string to_json(const std::vector<ModelStats>& models) {
  using inspect::Json;
  Json list = Json::array();
  for (const ModelStats& model : models) {
    list.push_back({{"fingerprint", model.fingerprint},
                    {"bytes", model.bytes},
                    {"recorded_steps", model.recorded_steps},
                    {"distinct_shapes", model.distinct_shapes},
                    {"runs", model.runs},
                    {"updated_at", model.updated_at.empty() ? Json() : Json(model.updated_at)},
                    {"taught_by", model.taught_by}});
  }
  return inspect::dump(Json{{"models", std::move(list)}}, -1);
}

}  // namespace pudica::daemon
