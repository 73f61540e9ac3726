#include "daemon/store.h"

#include <SQLiteCpp/Exception.h>
#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "base/log.h"
#include "daemon/store_database.h"
#include "daemon/store_limits.h"

namespace pudica::daemon {
namespace {

constexpr auto kMostSigned = std::numeric_limits<std::int64_t>::max();

constexpr const char* kSaveRun =
    "INSERT INTO runs (id, name, summary, status, started_at, ended_at) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET name = excluded.name, summary = excluded.summary, "
    "status = excluded.status, started_at = excluded.started_at, ended_at = excluded.ended_at";
constexpr const char* kRuns =
    "SELECT id, name, summary, status, started_at, ended_at FROM runs "
    "ORDER BY started_at DESC, rowid DESC LIMIT ?";
constexpr const char* kRun =
    "SELECT id, name, summary, status, started_at, ended_at FROM runs WHERE id = ?1 OR name = ?1 "
    "ORDER BY id = ?1 DESC, started_at DESC, rowid DESC LIMIT 1";
constexpr const char* kSaveModel =
    "INSERT INTO models (fingerprint, state, recorded_steps, distinct_shapes, runs, updated_at, "
    "taught_by, dropped) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (fingerprint) DO UPDATE SET "
    "state = excluded.state, recorded_steps = excluded.recorded_steps, "
    "distinct_shapes = excluded.distinct_shapes, runs = excluded.runs, "
    "updated_at = excluded.updated_at, taught_by = excluded.taught_by, "
    "dropped = excluded.dropped";
constexpr const char* kModels =
    "SELECT fingerprint, state, recorded_steps, distinct_shapes, runs, updated_at, taught_by, "
    "dropped FROM models ORDER BY updated_at DESC, rowid DESC";
constexpr const char* kModel =
    "SELECT fingerprint, state, recorded_steps, distinct_shapes, runs, updated_at, taught_by, "
    "dropped FROM models WHERE fingerprint = ?";
constexpr const char* kMarkUnfinished =
    "UPDATE runs SET status = ?, ended_at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now') "
    "WHERE ended_at = ''";

StoredRun run_of(const StoreQuery& row) {
  return {row.text(0), row.text(1), row.text(2), row.text(3), row.text(4), row.text(5)};
}

StoredModel model_of(const StoreQuery& row) {
  return {row.text(0),   row.text(1), row.number(2), row.number(3),
          row.number(4), row.text(5), row.text(6),   row.text(7)};
}

}  // namespace

// The connection, and what must be remembered of a transaction under way.
class Store::Impl {
 public:
  explicit Impl(std::unique_ptr<StoreDatabase> database) : database_(std::move(database)) {}

  // Runs one operation; `T` is what it gives. A damaged file is replaced, once it is closed.
  template <typename T, typename Body>
  Result<T> operate(const StoreOptions& options, std::string_view what, const Body& body) {
    if (failed_) return failed_->with_context(what);
    try {
      auto ready = reopen(options);
      if (!ready) return ready.error();
      return body(*database_);
    } catch (const SQLite::Exception& error) {
      Error out = store_error(what, error);
      full_ = full_ || out.code == ErrorCode::kOverBudget;
      if (in_transaction_) {
        failed_ = out;  // SQLite may have rolled back; the rest must not be written alone
      } else {
        heal(options, out);
      }
      return out;
    }
  }

  Result<void> begin(const StoreOptions& options) {
    auto begun = operate<void>(options, "begin", [](StoreDatabase& database) {
      database.execute("BEGIN IMMEDIATE");
      return Result<void>();
    });
    in_transaction_ = begun.has_value();
    return begun;
  }

  Result<void> finish(const StoreOptions& options, Result<void> outcome) {
    in_transaction_ = false;
    if (failed_) outcome = *std::exchange(failed_, std::nullopt);
    if (outcome) {
      outcome = operate<void>(options, "commit", [](StoreDatabase& database) {
        database.execute("COMMIT");
        return Result<void>();
      });
    }
    if (!outcome) roll_back();
    if (!outcome) heal(options, outcome.error());
    return outcome;
  }

  // Whether a write found no room since this was last asked.
  bool take_full() { return std::exchange(full_, false); }
  [[nodiscard]] bool in_transaction() const { return in_transaction_; }
  [[nodiscard]] std::int64_t replacements() const { return replacements_; }
  [[nodiscard]] std::int64_t schema_version() const {
    return database_ ? database_->schema_version() : 0;
  }

 private:
  void roll_back() {
    try {
      if (database_) database_->execute("ROLLBACK");
    } catch (const SQLite::Exception&) {
      // Nothing is left to roll back: SQLite did it when the transaction failed.
    }
  }

  // Puts an empty file in the place of a damaged one.
  void heal(const StoreOptions& options, const Error& error) {
    if (error.code != ErrorCode::kCorrupt) return;
    database_.reset();
    ++replacements_;
    const auto moved = StoreDatabase::move_aside(options.path, error.message);
    if (!moved) log_warn(moved.error().message);
    const auto ready = reopen(options);
    if (!ready) log_warn(ready.error().message);
  }

  Result<void> reopen(const StoreOptions& options) {
    if (database_) return {};
    auto opened = StoreDatabase::open(options);
    if (!opened) return opened.error();
    database_ = std::move(*opened);
    return {};
  }

  std::unique_ptr<StoreDatabase> database_;  // null: could not be opened again
  std::int64_t replacements_ = 0;
  bool in_transaction_ = false;
  bool full_ = false;
  std::optional<Error> failed_;  // of the transaction under way
};

Store::Store(StoreOptions options) : options_(std::move(options)) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::open(StoreOptions options) {
  options.max_bytes = std::max(options.max_bytes, std::int64_t{1} << 20U);
  options.max_runs = std::max<std::int64_t>(options.max_runs, 1);
  options.max_steps_per_run = std::max<std::int64_t>(options.max_steps_per_run, 1);
  options.max_models = std::max<std::int64_t>(options.max_models, 1);
  auto database = StoreDatabase::open(options);
  if (!database) return database.error();
  std::unique_ptr<Store> store(new Store(std::move(options)));
  store->impl_ = std::make_unique<Impl>(std::move(*database));
  return store;
}

Result<void> Store::transaction(const std::function<Result<void>(Store&)>& body) {
  const std::lock_guard lock(mutex_);
  if (impl_->in_transaction()) return invalid_argument("a transaction within a transaction");
  auto begun = impl_->begin(options_);
  if (!begun) return begun;
  Result<void> outcome;
  try {
    outcome = body(*this);
  } catch (const std::exception& error) {
    outcome = Error{ErrorCode::kUnavailable, std::string("transaction: ") + error.what()};
  }
  return impl_->finish(options_, std::move(outcome));
}

Result<void> Store::save_run(const StoredRun& run) {
  const std::lock_guard lock(mutex_);
  return impl_->operate<void>(options_, "save_run", [&](StoreDatabase& database) -> Result<void> {
    StoreQuery query(database, kSaveRun);
    query.with(run.id).with(run.name).with(run.summary_json);
    query.with(run.status).with(run.started_at).with(run.ended_at).run();
    return {};
  });
}

Result<std::vector<StoredRun>> Store::runs(std::int64_t limit) {
  const std::lock_guard lock(mutex_);
  using Runs = std::vector<StoredRun>;
  return impl_->operate<Runs>(options_, "runs", [&](StoreDatabase& database) -> Result<Runs> {
    StoreQuery query(database, kRuns);
    query.with(std::max<std::int64_t>(limit, 0));
    Runs out;
    while (query.next()) out.push_back(run_of(query));
    return out;
  });
}

Result<StoredRun> Store::run(const std::string& id_or_name) {
  const std::lock_guard lock(mutex_);
  return impl_->operate<StoredRun>(
      options_, "run", [&](StoreDatabase& database) -> Result<StoredRun> {
        StoreQuery query(database, kRun);
        if (query.with(id_or_name).next()) return run_of(query);
        return Error{ErrorCode::kNotFound, "no run '" + id_or_name + "' is stored"};
      });
}

Result<void> Store::save_plans(const std::string& run_id, const std::string& json) {
  const std::lock_guard lock(mutex_);
  return impl_->operate<void>(options_, "save_plans", [&](StoreDatabase& database) -> Result<void> {
    StoreQuery query(database, "INSERT OR REPLACE INTO plans (run_id, json) VALUES (?, ?)");
    query.with(run_id).with(json).run();
    return {};
  });
}

Result<std::string> Store::plans(const std::string& run_id) {
  const std::lock_guard lock(mutex_);
  return impl_->operate<std::string>(
      options_, "plans", [&](StoreDatabase& database) -> Result<std::string> {
        StoreQuery query(database, "SELECT json FROM plans WHERE run_id = ?");
        if (query.with(run_id).next()) return query.text(0);
        return Error{ErrorCode::kNotFound, "no plans of run '" + run_id + "' are stored"};
      });
}

Result<void> Store::add_steps(const std::string& run_id, std::span<const StoredStep> steps) {
  const std::lock_guard lock(mutex_);
  if (steps.empty()) return {};
  if (!impl_->in_transaction()) {
    return transaction([&](Store& store) { return store.add_steps(run_id, steps); });
  }
  std::uint64_t last = 0;
  for (const StoredStep& step : steps) last = std::max(last, step.step);
  if (last > static_cast<std::uint64_t>(kMostSigned)) {
    return invalid_argument("step " + std::to_string(last) + ", expected at most " +
                            std::to_string(kMostSigned));
  }
  return impl_->operate<void>(options_, "add_steps", [&](StoreDatabase& database) -> Result<void> {
    {
      StoreQuery query(database,
                       "INSERT OR REPLACE INTO steps (run_id, step, json) VALUES (?, ?, ?)");
      for (const StoredStep& step : steps) {
        query.with(run_id).with(static_cast<std::int64_t>(step.step)).with(step.json).run();
      }
    }
    const auto first = static_cast<std::int64_t>(last) - options_.max_steps_per_run;
    StoreQuery query(database, "DELETE FROM steps WHERE run_id = ? AND step <= ?");
    query.with(run_id).with(first).run();
    return {};
  });
}

Result<std::vector<StoredStep>> Store::steps(const std::string& run_id, std::int64_t limit) {
  const std::lock_guard lock(mutex_);
  using Steps = std::vector<StoredStep>;
  return impl_->operate<Steps>(options_, "steps", [&](StoreDatabase& database) -> Result<Steps> {
    StoreQuery query(database,
                     "SELECT step, json FROM steps WHERE run_id = ? ORDER BY step DESC LIMIT ?");
    query.with(run_id).with(std::max<std::int64_t>(limit, 0));
    Steps out;
    while (query.next()) {
      out.push_back({static_cast<std::uint64_t>(query.number(0)), query.text(1)});
    }
    std::ranges::reverse(out);
    return out;
  });
}

Result<void> Store::save_model(const StoredModel& model) {
  const std::lock_guard lock(mutex_);
  return impl_->operate<void>(options_, "save_model", [&](StoreDatabase& database) -> Result<void> {
    StoreQuery query(database, kSaveModel);
    query.with(model.fingerprint).with(model.state).with(model.recorded_steps);
    query.with(model.distinct_shapes).with(model.runs).with(model.updated_at);
    query.with(model.taught_by).with(model.dropped).run();
    return {};
  });
}

Result<StoredModel> Store::model(const std::string& fingerprint) {
  const std::lock_guard lock(mutex_);
  return impl_->operate<StoredModel>(
      options_, "model", [&](StoreDatabase& database) -> Result<StoredModel> {
        StoreQuery query(database, kModel);
        if (query.with(fingerprint).next()) return model_of(query);
        return Error{ErrorCode::kNotFound, "no model '" + fingerprint + "' is stored"};
      });
}

Result<std::vector<StoredModel>> Store::models() {
  const std::lock_guard lock(mutex_);
  using Models = std::vector<StoredModel>;
  return impl_->operate<Models>(options_, "models", [&](StoreDatabase& database) -> Result<Models> {
    StoreQuery query(database, kModels);
    Models out;
    while (query.next()) out.push_back(model_of(query));
    return out;
  });
}

Result<void> Store::remove_model(const std::string& fingerprint) {
  const std::lock_guard lock(mutex_);
  return impl_->operate<void>(
      options_, "remove_model", [&](StoreDatabase& database) -> Result<void> {
        StoreQuery(database, "DELETE FROM models WHERE fingerprint = ?").with(fingerprint).run();
        return {};
      });
}

Result<StoredGroups> Store::groups() {
  const std::lock_guard lock(mutex_);
  return impl_->operate<StoredGroups>(
      options_, "groups",
      [](StoreDatabase& database) -> Result<StoredGroups> { return read_groups(database); });
}

Result<void> Store::save_groups(const StoredGroupChanges& changes) {
  return transaction([&](Store& store) {
    return store.impl_->operate<void>(options_, "save_groups",
                                      [&](StoreDatabase& database) -> Result<void> {
                                        write_groups(database, changes);
                                        return {};
                                      });
  });
}

std::int64_t Store::replacements() const {
  const std::lock_guard lock(mutex_);
  return impl_->replacements();
}

Result<std::int64_t> Store::mark_unfinished(std::string_view status) {
  const std::lock_guard lock(mutex_);
  const std::string text(status);
  return impl_->operate<std::int64_t>(options_, "mark_unfinished",
                                      [&](StoreDatabase& database) -> Result<std::int64_t> {
                                        StoreQuery query(database, kMarkUnfinished);
                                        return query.with(text).run();
                                      });
}

Result<void> Store::prune() {
  const std::lock_guard lock(mutex_);
  if (impl_->in_transaction()) return invalid_argument("prune() within a transaction");
  // What found no room must find some now.
  const StoreLimits limits(impl_->take_full() ? options_.max_bytes / 2 : options_.max_bytes);
  return impl_->operate<void>(options_, "prune", [&](StoreDatabase& database) -> Result<void> {
    prune_database(database, options_, limits);
    return {};
  });
}

Result<std::int64_t> Store::remove_ended(const std::string& until) {
  const std::lock_guard lock(mutex_);
  if (impl_->in_transaction()) return invalid_argument("remove_ended() within a transaction");
  return impl_->operate<std::int64_t>(
      options_, "remove_ended", [&](StoreDatabase& database) -> Result<std::int64_t> {
        const std::int64_t removed = remove_ended_runs(database, until);
        prune_database(database, options_, StoreLimits(options_.max_bytes));
        return removed;
      });
}

Result<std::int64_t> Store::bytes_used() {
  const std::lock_guard lock(mutex_);
  return impl_->operate<std::int64_t>(
      options_, "bytes_used",
      [](StoreDatabase& database) -> Result<std::int64_t> { return used_bytes(database); });
}

bool Store::crowded() {
  const auto used = bytes_used();
  return used && *used > StoreLimits(options_.max_bytes).crowded_bytes;
}

std::int64_t Store::transaction_bytes() const {
  return StoreLimits(options_.max_bytes).transaction_bytes;
}

std::int64_t Store::schema_version() const {
  const std::lock_guard lock(mutex_);
  return impl_->schema_version();
}

}  // namespace pudica::daemon
