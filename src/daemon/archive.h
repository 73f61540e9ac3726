// What the daemon's parts keep in the store and read back, in their own terms.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/model_pool.h"
#include "daemon/run_state.h"
#include "daemon/store.h"
#include "daemon/store_writer.h"
#include "inspect/json_values.h"
#include "pudica/result.h"

namespace pudica::daemon {

struct ArchiveStats {
  std::int64_t bytes = 0;
  StoreWriterStats writer;
};

// Writing never waits for the disk, but for what groups promise; what finds no room is dropped and
// counted. Thread-safe.
class Archive {
 public:
  // Opens the store; runs that it holds without an end are lost. Errors: those of Store::open.
  static Result<std::unique_ptr<Archive>> open(const StoreOptions& options);

  // What becomes of a live run's snapshot, which is large and another one all the time.
  enum class Snapshot : std::uint8_t {
    kIfNoneIsKept,  // by this daemon
    kIfNew,
  };
  // Without regard to its steps. Of a run that has ended the snapshot is kept in any case.
  void save(const RunDetail& run, Snapshot snapshot = Snapshot::kIfNoneIsKept);
  void save_steps(const std::string& run, std::vector<StepSummary> steps);
  void save(const ModelStats& model, std::string state);
  void remove_model(const std::string& fingerprint);

  // Runs that ended, newest first, as the object "run" of the API.
  [[nodiscard]] std::vector<inspect::Json> runs(std::int64_t limit);
  // By id or name, with steps, as GET /v1/runs/{id}. nullopt: not kept.
  [[nodiscard]] std::optional<inspect::Json> run(const std::string& id_or_name);
  [[nodiscard]] std::optional<inspect::Json> plans(const std::string& id_or_name);
  // The last one that was kept of a run, as it came; nullptr: none.
  [[nodiscard]] std::shared_ptr<const std::string> snapshot(const std::string& id);
  // Whose run has the id: nullopt where none has, no user where it was kept by an older daemon.
  struct Owner {
    std::optional<unsigned> user_id;
  };
  [[nodiscard]] std::optional<Owner> owner(const std::string& id);
  // Fills the pool with what was learned before.
  void load_models(ModelPool& pool);
  // Removes the runs that ended then or before, once all that waits is written. Returns how many.
  Result<std::int64_t> remove_ended(std::int64_t until_unix_seconds);

  // What budget groups had promised.
  Result<StoredGroups> groups() { return store_->groups(); }
  // Kept once this returns, whatever becomes of the daemon.
  Result<void> save_groups(const StoredGroupChanges& changes) {
    return store_->save_groups(changes);
  }
  // As Store::replacements.
  [[nodiscard]] std::int64_t replacements() const { return store_->replacements(); }

  [[nodiscard]] ArchiveStats stats();
  // Writes what waits, for a second at most.
  void stop();

 private:
  explicit Archive(std::unique_ptr<Store> store);
  bool takes_snapshot(const RunDetail& run, Snapshot snapshot);

  std::mutex mutex_;
  // By live run: the snapshot that was kept last; guarded by mutex_.
  std::map<std::string, std::weak_ptr<const std::string>> kept_;
  std::unique_ptr<Store> store_;
  StoreWriter writer_;  // after the store: ends before it
};

}  // namespace pudica::daemon
