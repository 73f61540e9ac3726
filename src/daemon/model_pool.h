// ModelPool: learned models by fingerprint, shared by the ranks of a job and by later runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/pooled_model.h"
#include "inspect/json.h"
#include "pudica/controller.h"
#include "pudica/result.h"

namespace pudica::daemon {

struct ModelPoolOptions {
  std::size_t max_models = 200;                         // the least recently used goes first
  std::size_t max_state_bytes = std::size_t{4} << 20U;  // of one model's state
  ControllerOptions controller;
  std::function<std::string()> now;  // "2026-01-01T12:00:00Z"; empty: the system's clock
};

// An element of GET /v1/models.
struct ModelStats {
  std::string fingerprint;
  std::int64_t bytes = 0;
  std::int64_t recorded_steps = 0;
  std::int64_t distinct_shapes = 0;
  std::int64_t runs = 0;  // that taught it
  std::string updated_at;
  std::vector<std::string> taught_by;  // the latest of them by id, the latest last; bounded
  std::vector<std::uint64_t> dropped;  // PooledModel::dropped(); not of the API
};

// The answer of GET /v1/models. Never throws.
std::string to_json(const std::vector<ModelStats>& models);

// Whatever it is given, what a model has learned before stays. Errors of the writers:
// kInvalidArgument for an empty fingerprint (such runs share nothing) or a record that makes no
// sense, kOverBudget for a state that is too large, kCorrupt for one that cannot be read.
// Thread-safe; a learning step takes it some milliseconds.
class ModelPool {
 public:
  explicit ModelPool(ModelPoolOptions options = {});
  ~ModelPool();
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  // Learns from a step; to be called for those without profiles too, which cost next to nothing:
  // they tell that the step before has ended. `source` tells processes apart (a run's id); empty:
  // the record's `run`. True: the version has risen.
  Result<bool> observe(const std::string& fingerprint, const StepRecord& record,
                       std::string_view source = {});
  // Takes a run's whole state where the pool has none of that fingerprint, or knows less: fewer
  // distinct shapes of segments, or as many and fewer recorded steps. True: the version has risen.
  Result<bool> adopt(const std::string& fingerprint, const std::string& state,
                     std::string_view source = {});
  // What the store kept, at start-up: like adopt(), with the count of runs, the time and the marks
  // of dropped states it had.
  Result<void> load(const ModelStats& stats, const std::string& state);

  // Forgets a model. False: it is not known.
  bool remove(const std::string& fingerprint);

  // nullopt: nothing was learned.
  [[nodiscard]] std::optional<std::string> state(const std::string& fingerprint);
  // Rises when the model has learned something that a run may want; 0: not known.
  [[nodiscard]] std::uint64_t version(const std::string& fingerprint) const;
  [[nodiscard]] std::optional<ModelStats> stats(const std::string& fingerprint) const;
  [[nodiscard]] std::vector<ModelStats> stats() const;  // by fingerprint

 private:
  struct Entry {
    explicit Entry(PooledModel pooled) : model(std::move(pooled)) {}
    PooledModel model;
    std::uint64_t version = 0;
    std::uint64_t used = 0;
    std::set<std::string, std::less<>> sources;  // bounded
    std::int64_t runs = 0;
    std::string updated_at;
    std::vector<std::string> taught_by;
    int drops = 0;
  };

  using Change = std::function<Result<bool>(PooledModel&)>;
  Result<bool> change(const std::string& fingerprint, std::string_view source, const Change& what);
  static void note_teacher(Entry& entry, std::string_view source);
  [[nodiscard]] ModelStats stats_of(const std::string& fingerprint, const Entry& entry) const;

  ModelPoolOptions options_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> models_;  // guarded by mutex_, as the next one
  std::uint64_t uses_ = 0;
};

}  // namespace pudica::daemon
