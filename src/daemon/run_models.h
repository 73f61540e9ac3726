// Learned models of the runs: taught by their events, offered to others, asked for answers.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "daemon/archive.h"
#include "daemon/asked_run.h"
#include "daemon/model_pool.h"
#include "daemon/run_registry.h"
#include "inspect/model_view.h"
#include "pudica/result.h"

namespace pudica::daemon {

// Holds references, which must outlive it. Thread-safe.
class RunModels {
 public:
  RunModels(RunRegistry& registry, Archive& archive);

  void learn(const RunSummary& run, const StepRecord& record);
  void adopt(const RunSummary& run, const std::string& state);
  // Of a fingerprint; nullopt: nothing was learned, or the fingerprint is empty.
  [[nodiscard]] std::optional<std::string> state(const std::string& fingerprint);
  [[nodiscard]] std::vector<ModelStats> stats() const { return pool_.stats(); }

  // Forgets what was learned of a fingerprint, in the store too; a live run of it teaches it anew.
  // False: nothing was.
  bool remove(const std::string& fingerprint);

  // Whether anything was learned that view() could be made of.
  [[nodiscard]] bool knows(const RunDetail& run) const;
  // What answers questions about the run's shapes: its own learned state, else the pooled one.
  // Errors: kUnavailable where nothing was learned; those of inspect::ModelView::from_state.
  Result<std::shared_ptr<const inspect::ModelView>> view(const AskedRun& run);

  // Offers what was learned since the last time to the other runs of the fingerprint, and saves it.
  void tick();

 private:
  struct CachedView {
    std::string run;
    std::shared_ptr<const std::string> own_state;  // what it was made of: this,
    std::uint64_t pool_version = 0;                // or the pool's state of this version
    std::optional<Bytes> base_bytes;
    std::shared_ptr<const inspect::ModelView> view;
  };

  void note_learned(const RunSummary& run, const Result<bool>& risen);

  RunRegistry& registry_;
  Archive& archive_;
  ModelPool pool_;
  std::mutex saving_;  // what is removed is not saved after that
  std::mutex mutex_;
  std::map<std::string, std::set<std::string>> news_;  // fingerprint -> runs that taught it
  std::list<CachedView> views_;                        // most recently used first, bounded
};

}  // namespace pudica::daemon
