// Between budget groups and runs: orders become commands, events become confirmations.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/budget_groups.h"
#include "daemon/budget_ledger.h"
#include "daemon/process_check.h"
#include "daemon/run_registry.h"
#include "inspect/json_values.h"

namespace pudica::daemon {

struct BudgetDeskOptions {
  // How long a run that begins waits for others of its group to leave it its floor. Training waits
  // for its registration for 3 s.
  std::chrono::milliseconds room_wait{2000};
};

// What is promised to a run is kept by the archive before the run hears of it; what the daemon
// before this one promised is counted until its runs come back or are gone. Registry and archive
// must outlive it. Thread-safe.
class BudgetDesk {
 public:
  BudgetDesk(RunRegistry& registry, Clock clock, Archive& archive, BudgetDeskOptions options = {});

  Result<GroupView> set_total(const std::string& group, Bytes total);
  // The configuration file's word: counts where it says something else than it did when it was
  // last read, so that what an operator has set since outlives restarts.
  Result<void> set_total_of_file(const std::string& group, Bytes total);
  // For a run that registered: what its group grants; nullopt where it is in none. Waits for room
  // where the run has not begun; where none comes it has its floor all the same, and counts.
  // Errors: those of BudgetGroups::join.
  Result<std::optional<Bytes>> join(const std::string& run, const RunDescription& about);
  // The id of the member that calls itself so; empty: none.
  [[nodiscard]] std::string id_of(const std::string& instance) const;
  // An operator's budget for a run: its number in the run's commands; 0: it waits until others of
  // the group have come down. Errors: kNotFound, kOverBudget, kInvalidArgument.
  Result<std::uint64_t> ask(const std::string& run, Bytes budget);
  void on(const std::string& run, const BudgetEvent& event);
  void on(const std::string& run, const NeedEvent& event);
  void ended(const std::string& run);
  void lost(const std::string& run);
  // Lost runs whose process is known to be gone give their memory back.
  void tick();
  // Nobody waits for room any more.
  void stop();
  [[nodiscard]] std::vector<GroupView> view() const;

 private:
  struct Sent {
    std::uint64_t seq = 0;
    std::uint64_t number = 0;
    Bytes bytes{0};
  };
  struct Member {
    ProcessMark process;
    std::string instance;
    std::optional<double> lost_at;  // monotonic
    std::uint64_t last_number = 0;
    std::deque<Sent> sent;
  };

  // With mutex_ held.
  void restore();
  [[nodiscard]] StoredGroups promises() const;
  void send_orders(const std::string& operators_run);
  void took(const std::string& run, const BudgetEvent& event);
  void forget(const std::string& run);
  [[nodiscard]] const GroupMember* member_view(const std::string& run, GroupView& holder) const;

  RunRegistry& registry_;
  Clock clock_;
  BudgetDeskOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable moved_;  // budgets were ordered, or nobody is to wait any more
  bool stopped_ = false;
  BudgetLedger ledger_;
  BudgetGroups groups_;
  std::map<std::string, Bytes> file_totals_;  // by group
  std::map<std::string, Member> members_;
};

inspect::Json to_json(const GroupView& group);

}  // namespace pudica::daemon
