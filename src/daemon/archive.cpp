#include "daemon/archive.h"

#include <utility>

#include "base/log.h"
#include "base/safe_text.h"
#include "daemon/clock.h"
#include "daemon/run_json.h"

namespace pudica::daemon {
namespace {

using inspect::Json;

// The items of a JSON array that are of this type; the others are left out.
template <typename T>
std::vector<T> values_of(const std::string& array, bool (Json::*is_such)() const noexcept) {
  std::vector<T> out;
  const Json parsed = Json::parse(array, nullptr, false);
  if (!parsed.is_array()) return out;
  for (const Json& item : parsed) {
    if ((item.*is_such)()) out.push_back(item.get<T>());
  }
  return out;
}

constexpr std::chrono::seconds kFlushTime{5};

// What GET /v1/runs/{id} has beside the object "run".
constexpr std::array kDetails{"budgets", "structure", "learned", "counters", "longest_keys"};
// Of these, what a snapshot tells.
constexpr std::array kOfSnapshot{"structure", "learned", "counters"};

StoredRun stored(const RunDetail& detail) {
  const RunSummary& run = detail.summary;
  RunDetail kept = detail;
  kept.steps.clear();
  if (run.live()) kept.snapshot = nullptr;  // large, and read at the end
  Json json = Json::parse(to_json(kept, CommandLine::kShown));
  json.erase("steps");
  json["learned"] = Json();  // large, and kept with the snapshot
  return {run.id,
          run.about->name,
          inspect::dump(json, -1),
          run.status,
          format_time(run.started_at),
          run.ended_at ? format_time(*run.ended_at) : std::string()};
}

// As it came: it is neither read nor written anew for being kept.
std::string stored_snapshot(const std::string& run, const std::string& snapshot) {
  return "{\"run\":" + inspect::dump(Json(run), -1) + ",\"snapshot\":" + snapshot + "}";
}

// The snapshot of which a row was made; an empty object where there is none. Older daemons kept
// plans and what was learned alone.
Json snapshot_of(const std::string& row) {
  Json kept = Json::parse(row, nullptr, false);
  if (!kept.is_object()) return Json::object();
  const auto found = kept.find("snapshot");
  if (found == kept.end()) return kept;
  return found->is_object() ? std::move(*found) : Json::object();
}

// As it was saved, with the end that the store knows of.
std::optional<Json> restored(const StoredRun& run) {
  Json json = Json::parse(run.summary_json, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  if (!json.contains("recomputed_calls_share")) {
    // Written when the one share that was told was that of layer calls.
    json["recomputed_calls_share"] = json.value("recomputed_share", Json());
    json["recomputed_share"] = Json();
    json["budget_used"] = Json();
  }
  if (json.value("ended_at", Json()).is_null()) {
    json["state"] = run.status == "lost" ? "lost" : "ended";
    json["status"] = run.status.empty() ? Json() : Json(run.status);
    json["ended_at"] = run.ended_at.empty() ? Json() : Json(run.ended_at);
    json["budget_pending_bytes"] = Json();
  }
  return json;
}

}  // namespace

Archive::Archive(std::unique_ptr<Store> store) : store_(std::move(store)), writer_(*store_) {}

Result<std::unique_ptr<Archive>> Archive::open(const StoreOptions& options) {
  auto store = Store::open(options);
  if (!store) return store.error();
  const auto lost = (*store)->mark_unfinished("lost");
  if (!lost) return lost.error();
  if (*lost > 0) log_info("runs of the daemon before this one: lost=" + std::to_string(*lost));
  return std::unique_ptr<Archive>(new Archive(std::move(*store)));
}

bool Archive::takes_snapshot(const RunDetail& run, Snapshot snapshot) {
  const std::lock_guard lock(mutex_);
  if (!run.summary.live()) {
    kept_.erase(run.summary.id);
    return run.snapshot != nullptr;
  }
  if (run.snapshot == nullptr) return false;
  const auto last = kept_.find(run.summary.id);
  if (last != kept_.end()) {
    if (snapshot == Snapshot::kIfNoneIsKept || last->second.lock() == run.snapshot) return false;
  }
  kept_[run.summary.id] = run.snapshot;
  return true;
}

void Archive::save(const RunDetail& run, Snapshot snapshot) {
  StoredRun row = stored(run);
  std::string plans = takes_snapshot(run, snapshot) ? stored_snapshot(row.id, *run.snapshot) : "";
  const std::size_t bytes = row.summary_json.size() + plans.size();
  writer_.post(
      [row = std::move(row), plans = std::move(plans)](Store& store) -> Result<void> {
        if (auto saved = store.save_run(row); !saved) return saved;
        return plans.empty() ? Result<void>() : store.save_plans(row.id, plans);
      },
      bytes);
}

void Archive::save_steps(const std::string& run, std::vector<StepSummary> steps) {
  if (steps.empty()) return;
  const std::size_t bytes = steps.size() * sizeof(StepSummary);
  writer_.post(
      [run, steps = std::move(steps)](Store& store) {
        std::vector<StoredStep> rows;
        rows.reserve(steps.size());
        for (const StepSummary& step : steps) {
          rows.push_back({step.step, to_json(step)});
        }
        return store.add_steps(run, rows);
      },
      bytes);
}

void Archive::save(const ModelStats& model, std::string state) {
  StoredModel row{model.fingerprint,
                  std::move(state),
                  model.recorded_steps,
                  model.distinct_shapes,
                  model.runs,
                  model.updated_at,
                  inspect::dump(inspect::Json(model.taught_by), -1),
                  inspect::dump(inspect::Json(model.dropped), -1)};
  const std::size_t bytes = row.state.size();
  writer_.post([row = std::move(row)](Store& store) { return store.save_model(row); }, bytes);
}

void Archive::remove_model(const std::string& fingerprint) {
  writer_.post([fingerprint](Store& store) { return store.remove_model(fingerprint); });
}

std::vector<Json> Archive::runs(std::int64_t limit) {
  std::vector<Json> out;
  const auto rows = store_->runs(limit);
  if (!rows) return out;
  for (const StoredRun& row : *rows) {
    auto json = restored(row);
    if (!json) continue;
    for (const char* const field : kDetails) json->erase(field);
    out.push_back(std::move(*json));
  }
  return out;
}

std::optional<Json> Archive::run(const std::string& id_or_name) {
  const auto row = store_->run(id_or_name);
  if (!row) return std::nullopt;
  auto json = restored(*row);
  if (!json) return std::nullopt;
  if (const auto text = store_->plans(row->id)) {
    Json snapshot = snapshot_of(*text);
    for (const char* const field : kOfSnapshot) {
      if ((*json)[field].is_null() && snapshot.contains(field)) {
        (*json)[field] = std::move(snapshot[field]);
      }
    }
  }
  (*json)["steps"] = Json::array();
  const auto steps = store_->steps(row->id, static_cast<std::int64_t>(kStepsKept));
  if (!steps) return json;
  for (const StoredStep& step : *steps) {
    Json read = Json::parse(step.json, nullptr, false);
    if (read.is_object()) (*json)["steps"].push_back(std::move(read));
  }
  return json;
}

std::optional<Archive::Owner> Archive::owner(const std::string& id) {
  const auto row = store_->run(id);
  if (!row || row->id != id) return std::nullopt;
  const auto json = restored(*row);
  return Owner{json ? owner_of(*json) : std::nullopt};
}

std::optional<Json> Archive::plans(const std::string& id_or_name) {
  const auto row = store_->run(id_or_name);
  if (!row) return std::nullopt;
  const auto text = store_->plans(row->id);
  Json snapshot = text ? snapshot_of(*text) : Json::object();
  Json& plans = snapshot["plans"];
  return Json{{"run", row->id}, {"plans", plans.is_array() ? std::move(plans) : Json::array()}};
}

std::shared_ptr<const std::string> Archive::snapshot(const std::string& id) {
  const auto text = store_->plans(id);
  if (!text) return nullptr;
  return std::make_shared<const std::string>(inspect::dump(snapshot_of(*text), -1));
}

Result<std::int64_t> Archive::remove_ended(std::int64_t until_unix_seconds) {
  writer_.flush(kFlushTime);
  return store_->remove_ended(format_time(until_unix_seconds));
}

void Archive::load_models(ModelPool& pool) {
  const auto models = store_->models();
  if (!models) {
    log_warn("learned models not read: error=" + log_value(models.error().message));
    return;
  }
  for (const StoredModel& model : *models) {
    ModelStats stats;
    stats.fingerprint = model.fingerprint;
    stats.bytes = static_cast<std::int64_t>(model.state.size());
    stats.recorded_steps = model.recorded_steps;
    stats.distinct_shapes = model.distinct_shapes;
    stats.runs = model.runs;
    stats.updated_at = model.updated_at;
    stats.taught_by = values_of<std::string>(model.taught_by, &Json::is_string);
    stats.dropped = values_of<std::uint64_t>(model.dropped, &Json::is_number_unsigned);
    if (auto loaded = pool.load(stats, model.state); !loaded) {
      log_warn("learned model not taken up: fingerprint=" + log_value(model.fingerprint) +
               " error=" + log_value(loaded.error().message));
    }
  }
}

ArchiveStats Archive::stats() {
  ArchiveStats out;
  out.writer = writer_.stats();
  if (const auto bytes = store_->bytes_used()) out.bytes = *bytes;
  return out;
}

void Archive::stop() { writer_.stop(); }

}  // namespace pudica::daemon
