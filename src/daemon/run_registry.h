// The live runs, those that ended lately, and the commands that wait for them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "daemon/clock.h"
#include "daemon/run_state.h"
#include "inspect/run_protocol.h"
#include "pudica/result.h"

namespace pudica::daemon {

struct RegistryLimits {
  std::size_t runs = 512;       // live at once
  std::size_t ended_runs = 64;  // remembered
  double timeout_seconds = 15;  // of silence, after which a run is lost
};

// What the daemon wants a run to use instead of its own budget.
struct GrantedBudget {
  Bytes bytes{0};
  std::string source;  // operator group
};

// What a client that asks to wait so long gets: polls that began together else end together, again
// and again. At least four fifths of it.
std::chrono::milliseconds spread_wait(std::chrono::milliseconds asked, std::mt19937_64& random);

// Knows no HTTP and no database. Thread-safe.
class RunRegistry {
 public:
  RunRegistry(Clock clock, RegistryLimits limits);

  // Fewer than there are: nobody leaves, and nobody new comes.
  void set_limits(const RegistryLimits& limits);
  [[nodiscard]] double timeout_seconds() const;

  // The id of the new run, `resume` where that is free or the same process's; whether its user may
  // have it the caller knows. Errors: kUnavailable
  // where there are as many runs as the limit allows.
  Result<std::string> add(RunDescription description);
  void grant(const std::string& id, const GrantedBudget& budget);

  // As if it had never registered.
  void remove(const std::string& id);

  // Takes in the events; the run after them. Errors: kNotFound where no live run has the id.
  Result<RunSummary> apply(const std::string& id, const EventBatch& batch);

  // Sequence number of the command. Errors: kNotFound.
  Result<std::uint64_t> push_budget(const std::string& id, const GrantedBudget& budget);
  Result<std::uint64_t> push_model(const std::string& id);

  // Commands above `after`, waiting for one; none when about `wait` is over, stop() was called or
  // whoever asked is `gone`. Commands up to `after` are forgotten. Errors: kNotFound, also where
  // the run ends meanwhile.
  Result<std::vector<Command>> commands(const std::string& id, std::uint64_t after,
                                        std::chrono::milliseconds wait,
                                        const std::stop_token& gone = {});

  // Runs silent for too long become lost; their ids.
  std::vector<std::string> expire();
  // Forgets those that ended then or before; the archive may know them still.
  void forget_ended(std::int64_t until_unix_seconds);
  // Ends all waiting, for good.
  void stop();

  // Live runs, oldest first; then those ended lately, oldest first, where asked for.
  enum class Which : std::uint8_t { kLive, kAll };
  [[nodiscard]] std::vector<RunSummary> list(Which which) const;
  // The run of that id, live or ended; else the live runs of that name, else the ended ones.
  [[nodiscard]] std::vector<std::string> ids_of(const std::string& id_or_name) const;
  // nullopt: no run, live or ended lately, has the id.
  [[nodiscard]] std::optional<std::string> name_of(const std::string& id) const;
  [[nodiscard]] std::optional<RunDetail> find(const std::string& id) const;
  // The same without its steps, which are the most of it.
  [[nodiscard]] std::optional<RunDetail> find_without_steps(const std::string& id) const;
  // The user whose run, live or ended lately, it is; nullopt: no such run.
  [[nodiscard]] std::optional<unsigned> owner(const std::string& id) const;
  [[nodiscard]] std::size_t live_count() const;

 private:
  struct Run {
    explicit Run(RunState initial) : state(std::move(initial)) {}
    RunState state;
    double seen_at = 0;  // monotonic
    std::uint64_t order = 0;
    std::uint64_t next_seq = 1;
    std::vector<Command> commands;  // at most one of each type
    std::condition_variable_any changed;
  };
  using RunPtr = std::shared_ptr<Run>;

  // All below: with mutex_ held.
  RunPtr live(const std::string& id) const;
  RunPtr live_or_ended(const std::string& id) const;
  RunPtr take_ended(const std::string& id);
  std::string new_id();
  void retire(const RunPtr& run);
  std::uint64_t push(Run& run, Command command);
  [[nodiscard]] std::vector<RunPtr> live_in_order() const;

  Clock clock_;
  mutable std::mutex mutex_;
  RegistryLimits limits_;
  std::map<std::string, RunPtr> live_;
  std::deque<RunPtr> ended_;
  std::mt19937_64 random_;
  std::uint64_t next_order_ = 0;
  bool stopped_ = false;
};

}  // namespace pudica::daemon
