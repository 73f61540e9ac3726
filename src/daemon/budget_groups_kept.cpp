// What of groups outlives the daemon: the third part of BudgetGroups.
#include "daemon/budget_groups.h"

namespace pudica::daemon {

std::optional<Bytes> BudgetGroups::total(const std::string& group) const {
  const auto found = groups_.find(group);
  if (found == groups_.end() || !found->second.total) return std::nullopt;
  return Bytes(*found->second.total);
}

std::vector<KeptMember> BudgetGroups::kept() const {
  std::vector<KeptMember> out;
  for (const auto& [name, group] : groups_) {
    for (const Run& run : group.runs) {
      out.push_back({name, run.id, Bytes(run.asked), Bytes(run.floor), Bytes(run.need()),
                     Bytes(run.bound()), run.pinned, !run.first_window});
    }
  }
  return out;
}

void BudgetGroups::restore(const std::map<std::string, Bytes>& totals,
                           const std::vector<KeptMember>& members) {
  for (const auto& [name, total] : totals) groups_[name].total = total.count();
  for (const KeptMember& member : members) {
    Run run;
    run.id = member.run;
    run.asked = member.asked_bytes.count();
    run.floor = member.floor_bytes.count();
    run.need_before = member.need_bytes.count();
    run.first_window = !member.need_known;
    run.pinned = member.pinned;
    run.confirmed = member.bound_bytes.count();
    run.lost = true;
    run.begun = member.bound_bytes >= member.floor_bytes;
    groups_[member.group].runs.push_back(std::move(run));
    group_of_[member.run] = member.group;
  }
  for (auto& [name, group] : groups_) update_shares(group);
}

}  // namespace pudica::daemon
