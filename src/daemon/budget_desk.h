// Between budget groups and runs: orders become commands, events become confirmations.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/budget_groups.h"
#include "daemon/process_check.h"
#include "daemon/run_registry.h"
#include "inspect/json_values.h"

namespace pudica::daemon {

// Holds a reference to the registry, which must outlive it. Thread-safe.
class BudgetDesk {
 public:
  explicit BudgetDesk(RunRegistry& registry, Clock clock);

  Result<GroupView> set_total(const std::string& group, Bytes total);
  // For a run that registered: what its group grants; nullopt where it is in none. Errors: those
  // of BudgetGroups::join.
  Result<std::optional<Bytes>> join(const std::string& run, const RunDescription& about);
  // An operator's budget for a run: its number in the run's commands; 0: it waits until others of
  // the group have come down. Errors: kNotFound, kOverBudget, kInvalidArgument.
  Result<std::uint64_t> ask(const std::string& run, Bytes budget);
  void on(const std::string& run, const BudgetEvent& event);
  void on(const std::string& run, const NeedEvent& event);
  void ended(const std::string& run);
  void lost(const std::string& run);
  // Lost runs whose process is known to be gone give their memory back.
  void tick();
  [[nodiscard]] std::vector<GroupView> view() const;

 private:
  struct Sent {
    std::uint64_t seq = 0;
    std::uint64_t number = 0;
  };
  struct Member {
    ProcessMark process;
    std::optional<double> lost_at;  // monotonic
    std::uint64_t last_number = 0;
    std::deque<Sent> sent;
  };

  // With mutex_ held.
  void send_orders(const std::string& operators_run);
  [[nodiscard]] const GroupMember* member_view(const std::string& run, GroupView& holder) const;

  RunRegistry& registry_;
  Clock clock_;
  mutable std::mutex mutex_;
  BudgetGroups groups_;
  std::map<std::string, Member> members_;
};

inspect::Json to_json(const GroupView& group);

}  // namespace pudica::daemon
