// Budget groups: runs on one device share a total; what one does not use is lent to the others.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pudica/bytes.h"
#include "pudica/result.h"

namespace pudica::daemon {

// A budget that a run is to be told. A later number replaces an earlier one of the same run.
struct BudgetOrder {
  std::string run;
  std::uint64_t number = 0;  // above every number given out before
  Bytes budget_bytes{0};

  bool operator==(const BudgetOrder&) const = default;
};

struct GroupMember {
  std::string id;
  Bytes share_bytes{0};  // what it has a right to
  Bytes floor_bytes{0};
  Bytes need_bytes{0};                 // what it could use, as far as it counts now
  Bytes budget_bytes{0};               // what it confirmed last
  std::optional<Bytes> pending_bytes;  // ordered last, not confirmed yet
  bool lost = false;
};

struct GroupView {
  std::string name;
  // In force now: never below assigned_bytes. nullopt: nobody has set a total yet.
  std::optional<Bytes> total_bytes;
  // What was asked for, where runs have still to come down to it.
  std::optional<Bytes> pending_total_bytes;
  Bytes assigned_bytes{0};        // the most that the runs may be using at this instant, together
  std::vector<GroupMember> runs;  // in the order in which they joined
};

struct JoinRequest {
  std::string group;
  std::string run;
  Bytes share_bytes{0};   // the budget that it would have alone
  Bytes floor_bytes{0};   // it is never told less; 0 where not known
  Bytes in_use_bytes{0};  // the budget that it may be using already; 0 before its first step
};

// A member as it must be known after a restart.
struct KeptMember {
  std::string group;
  std::string run;
  Bytes asked_bytes{0};  // its own budget, or what an operator asked for
  Bytes floor_bytes{0};
  Bytes need_bytes{0};
  Bytes bound_bytes{0};     // the most that it may be using
  bool pinned = false;      // asked for by an operator
  bool need_known = false;  // it has reported for long enough
};

struct BudgetGroupsOptions {
  // A need that falls counts once it has been lower for this many reports, twice that at most.
  std::int64_t need_window = 16;
  // Smaller changes of what is lent are left out: a part of the run's budget.
  std::int64_t lend_band_divisor = 256;
  // The same for bytes of a share that nobody needs at present.
  std::int64_t idle_band_divisor = 16;
};

// Divides each group's total among its runs. At every instant, the sum over the runs of what each
// may be using is at most the total: a run may be using what it confirmed last and all that was
// ordered since; a lowering counts once confirmed, a raise is ordered only when covered.
//
// A run has a right to its share, and to what others leave unused in fair parts. Shares are the
// budgets asked for, scaled down together where they exceed the total, never below a floor: where
// the floors alone exceed the total, every run has its floor, and the sum is what it really is.
//
// Errors: kNotFound for an unknown run or group, kOverBudget where the total does not suffice,
// kInvalidArgument for a value out of range. A pure state machine; not thread-safe.
class BudgetGroups {
 public:
  explicit BudgetGroups(const BudgetGroupsOptions& options = {});

  // Makes the group if there is none. Lowering takes force as the runs confirm. kOverBudget where
  // it would be lowered below the floors of its runs.
  Result<void> set_total(const std::string& group, Bytes total_bytes);

  // The budget to begin with: what is free now, at most its share; the rest is ordered as others
  // give back. A group without a total grants what is asked. A run that is a member already comes
  // back (registers again); then in_use_bytes is what it says to be using. Nobody is turned away:
  // what a run uses beside its group would be counted by nobody.
  Result<Bytes> join(const JoinRequest& request);

  // For a run that has not begun, once it need not wait for room any more: what it begins with,
  // what was ordered last or its floor. Where less is free the sum is above the total until others
  // have come down. 0 for a run that is in no group.
  Bytes begin(const std::string& run);
  // What it confirmed last; 0 for a run that is in no group.
  [[nodiscard]] Bytes in_use(const std::string& run) const;
  // What the run is to use once it has caught up; 0 for a run that is in no group.
  [[nodiscard]] Bytes ordered(const std::string& run) const;

  // The run's memory is known to be free: it ended or is dead.
  void leave(const std::string& run);

  // Silent: what it may be using stays counted, and nothing is ordered until it joins again.
  void lost(const std::string& run);

  // What the run could use: the peak of its latest batch with every layer kept. Rises count at
  // once, falls after need_window reports.
  void need(const std::string& run, Bytes need_bytes);

  // The run's own budget by an operator: its share from now on, kept when others join.
  // kOverBudget, naming what is left, where it is more than the shares of the others leave.
  Result<void> set_share(const std::string& run, Bytes share_bytes);

  // The run uses the budget of this order from its current step on. Numbers may come late, twice
  // or never; a number confirms all before it. Requires of runs: orders are taken up in order.
  void confirm(const std::string& run, std::uint64_t number);

  // The run took `budget_bytes` where it was told less: it cannot do with less.
  void takes_no_less(const std::string& run, Bytes budget_bytes);

  // The run changed its budget itself: counted, and corrected by an order.
  void changed_itself(const std::string& run, Bytes budget_bytes);

  // For every run its latest order that is not confirmed yet. Calling it again changes nothing:
  // an order stays until its run confirms it, so that one that was lost can be sent again.
  [[nodiscard]] std::vector<BudgetOrder> take_orders() const;

  [[nodiscard]] std::vector<GroupView> view() const;
  [[nodiscard]] Result<GroupView> view(const std::string& group) const;
  // The group of a run; nullopt if it is in none.
  [[nodiscard]] std::optional<std::string> group_of(const std::string& run) const;
  // The total that was asked for; nullopt: nobody has set one.
  [[nodiscard]] std::optional<Bytes> total(const std::string& group) const;

  // All members, each group's in the order in which they joined.
  [[nodiscard]] std::vector<KeptMember> kept() const;
  // Takes up what another object kept; for one that has neither totals nor members yet. Members
  // are lost until they join again.
  void restore(const std::map<std::string, Bytes>& totals, const std::vector<KeptMember>& members);

 private:
  struct Order {
    std::uint64_t number = 0;
    std::int64_t bytes = 0;
  };
  struct Run {
    std::string id;
    std::int64_t asked = 0;
    std::int64_t floor = 0;
    std::int64_t share = 0;
    bool pinned = false;  // asked for by an operator
    bool lost = false;
    bool begun = false;  // has its floor, whether that is free or not
    bool exact = false;  // gets its target without regard to the bands
    bool tell = false;   // gets an order even if it says nothing new
    // The largest need of the running window of reports and of the one before it.
    std::int64_t need_now = 0;
    std::int64_t need_before = 0;
    std::int64_t reports = 0;
    bool first_window = true;
    std::int64_t confirmed = 0;
    std::uint64_t confirmed_number = 0;
    // Open orders, oldest first. Their bytes fall strictly: one that is no larger than a later one
    // adds nothing to what the run may be using.
    std::vector<Order> orders;

    [[nodiscard]] std::int64_t need() const;
    [[nodiscard]] std::int64_t ordered() const;  // what it uses once it has caught up
    [[nodiscard]] std::int64_t bound() const;    // the most that it may be using now
  };
  struct Group {
    std::optional<std::int64_t> total;  // asked for
    std::vector<Run> runs;
  };

  Run* find(const std::string& run);
  [[nodiscard]] const Run* find(const std::string& run) const;
  void remove(const std::string& run);
  [[nodiscard]] static std::int64_t assigned(const Group& group);
  [[nodiscard]] static std::vector<std::int64_t> targets(const Group& group);
  static void update_shares(Group& group);
  [[nodiscard]] bool lowering_is_due(const Run& run, std::int64_t target) const;
  [[nodiscard]] bool raise_is_due(const Run& run, std::int64_t target) const;
  [[nodiscard]] std::vector<std::int64_t> lowered(const Group& group,
                                                  const std::vector<std::int64_t>& targets) const;
  void raise(const Group& group, const std::vector<std::int64_t>& targets,
             std::vector<std::int64_t>& budgets) const;
  void order(Run& run, std::int64_t bytes);
  void rebalance(Group& group);
  [[nodiscard]] static GroupView view_of(const std::string& name, const Group& group);

  BudgetGroupsOptions options_;
  std::uint64_t last_number_ = 0;
  std::map<std::string, Group> groups_;
  std::map<std::string, std::string> group_of_;
};

}  // namespace pudica::daemon
