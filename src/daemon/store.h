// Store: what the daemon keeps over restarts: runs, their plans and steps, learned models (SQLite).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/stored_groups.h"
#include "pudica/result.h"

namespace pudica::daemon {

struct StoreOptions {
  std::string path;
  std::int64_t max_bytes = std::int64_t{256} << 20U;  // of the database's file and its journal
  std::int64_t max_runs = 1000;
  std::int64_t max_steps_per_run = 20000;
  std::int64_t max_models = 200;
  int busy_timeout_ms = 1000;  // how long to wait for another process
};

// Times are text in UTC, `2026-01-01T12:00:00Z`; empty: not yet.
struct StoredRun {
  std::string id;
  std::string name;
  std::string summary_json;
  std::string status;  // ok oom failed interrupted lost; empty: not ended
  std::string started_at;
  std::string ended_at;
};

struct StoredStep {
  std::uint64_t step = 0;
  std::string json;
};

struct StoredModel {
  std::string fingerprint;
  std::string state;
  std::int64_t recorded_steps = 0;
  std::int64_t distinct_shapes = 0;
  std::int64_t runs = 0;
  std::string updated_at;        // orders models by use
  std::string taught_by = "[]";  // run ids as a JSON array
  std::string dropped = "[]";    // marks of states that are not to be taken again, likewise
};

// Errors of every operation: kNotFound where said, kOverBudget where the file is full (prune()
// makes room), kCorrupt where the file turned out to be damaged (it was moved aside and an empty
// one is in its place), kUnavailable for the rest: another process holds it, the disk is full.
// Thread-safe. A write outside of transaction() is a transaction of its own.
class Store {
 public:
  // Makes the directory (0700) and the file (0600) where they are missing. A damaged file is moved
  // to `<path>.corrupt-<time>`, with a line in the log, and an empty one begun. Errors:
  // kUnavailable naming the path and the reason; kInvalidArgument for a database of a newer schema
  // (both versions named) or of another program, which is left as it is.
  static Result<std::unique_ptr<Store>> open(StoreOptions options);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  Result<void> save_run(const StoredRun& run);              // inserts or replaces by id
  Result<std::vector<StoredRun>> runs(std::int64_t limit);  // newest first
  // By id, else the newest of the name. Errors: kNotFound.
  Result<StoredRun> run(const std::string& id_or_name);
  Result<void> save_plans(const std::string& run_id, const std::string& json);
  Result<std::string> plans(const std::string& run_id);  // Errors: kNotFound
  // Keeps the last max_steps_per_run steps by number; a step of a number that is there is replaced.
  Result<void> add_steps(const std::string& run_id, std::span<const StoredStep> steps);
  Result<std::vector<StoredStep>> steps(const std::string& run_id, std::int64_t limit);  // the last
  Result<void> save_model(const StoredModel& model);          // inserts or replaces
  Result<StoredModel> model(const std::string& fingerprint);  // Errors: kNotFound
  Result<std::vector<StoredModel>> models();                  // most recently used first
  Result<void> remove_model(const std::string& fingerprint);
  Result<StoredGroups> groups();
  // All of it or nothing. Not within a transaction.
  Result<void> save_groups(const StoredGroupChanges& changes);
  // How often an empty file took the place of a damaged one: what was saved before is gone.
  [[nodiscard]] std::int64_t replacements() const;

  // At start-up: every run without an end ends now, with this status. Returns how many.
  Result<std::int64_t> mark_unfinished(std::string_view status);
  // Brings the store within its bounds: the oldest ended runs go first, with their steps and plans;
  // then, where the file is too large still, the older steps of other runs; models by least recent
  // use. Gives freed pages back.
  Result<void> prune();

  // Removes the runs that ended at `until` or before, and gives their pages back. Returns how many.
  Result<std::int64_t> remove_ended(const std::string& until);

  // Runs `body` in one transaction: all of its writes, or none where it returns an error or throws
  // (kUnavailable then). Other threads wait. Not to be nested.
  Result<void> transaction(const std::function<Result<void>(Store&)>& body);

  // Bytes of the database in use, without free pages and the write-ahead log.
  Result<std::int64_t> bytes_used();
  // Whether it is time to prune(), before writes find no room.
  [[nodiscard]] bool crowded();
  // The most that a transaction should write: all of it is in the journal at once.
  [[nodiscard]] std::int64_t transaction_bytes() const;
  [[nodiscard]] std::int64_t schema_version() const;
  [[nodiscard]] const std::string& path() const { return options_.path; }

 private:
  class Impl;
  explicit Store(StoreOptions options);

  StoreOptions options_;
  mutable std::recursive_mutex
      mutex_;                   // recursive: transaction() holds it while its body calls back
  std::unique_ptr<Impl> impl_;  // guarded by mutex_
};

}  // namespace pudica::daemon
