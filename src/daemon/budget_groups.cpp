#include "daemon/budget_groups.h"

#include <algorithm>
#include <utility>

namespace pudica::daemon {
namespace {

// No device has more: sums of budgets stay far from overflow.
constexpr Bytes kMostBytes{std::int64_t{1} << 50};
constexpr std::size_t kMaxGroups = 512;

Error out_of_range(const char* what, Bytes seen) {
  return invalid_argument(std::string(what) + ": " + std::to_string(seen.count()) +
                          " bytes, expected 0 to " + std::to_string(kMostBytes.count()));
}

bool in_range(Bytes bytes) { return bytes >= Bytes(0) && bytes <= kMostBytes; }

std::int64_t clamped(Bytes bytes) { return std::clamp(bytes, Bytes(0), kMostBytes).count(); }

Error not_member(const std::string& run) {
  return {ErrorCode::kNotFound, "run '" + run + "' is in no group"};
}

Error over_budget(const std::string& message) { return {ErrorCode::kOverBudget, message}; }

}  // namespace

BudgetGroups::BudgetGroups(const BudgetGroupsOptions& options) : options_(options) {}

std::int64_t BudgetGroups::Run::need() const {
  const std::int64_t seen = std::max(need_now, need_before);
  return first_window ? std::max(seen, share) : seen;
}

std::int64_t BudgetGroups::Run::ordered() const {
  return orders.empty() ? confirmed : orders.back().bytes;
}

std::int64_t BudgetGroups::Run::bound() const {
  return orders.empty() ? confirmed : std::max(confirmed, orders.front().bytes);
}

Result<void> BudgetGroups::set_total(const std::string& group, Bytes total_bytes) {
  if (!in_range(total_bytes) || total_bytes == Bytes(0)) return out_of_range("total", total_bytes);
  const auto known = groups_.find(group);
  if (known == groups_.end() && groups_.size() >= kMaxGroups) {
    return Error{ErrorCode::kUnavailable, "group '" + group + "': there are " +
                                              std::to_string(kMaxGroups) +
                                              " groups already, which is the most"};
  }
  if (known != groups_.end()) {
    std::int64_t floors = 0;
    for (const Run& run : known->second.runs) floors += run.floor;
    const bool lowers = total_bytes.count() < known->second.total.value_or(kMostBytes.count());
    if (floors > total_bytes.count() && lowers) {
      return over_budget("total " + format_bytes(total_bytes) + ": the " +
                         std::to_string(known->second.runs.size()) + " runs of group '" + group +
                         "' need at least " + format_bytes(Bytes(floors)) + " together");
    }
  }
  Group& changed = groups_[group];
  changed.total = total_bytes.count();
  update_shares(changed);
  for (Run& run : changed.runs) run.exact = true;
  rebalance(changed);
  return {};
}

Result<Bytes> BudgetGroups::join(const JoinRequest& request) {
  if (!in_range(request.share_bytes)) return out_of_range("share", request.share_bytes);
  if (!in_range(request.floor_bytes)) return out_of_range("floor", request.floor_bytes);
  const auto former = group_of(request.run);
  const auto known = groups_.find(request.group);
  if (known == groups_.end() && groups_.size() >= kMaxGroups) {
    return Error{ErrorCode::kUnavailable, "group '" + request.group + "': there are " +
                                              std::to_string(kMaxGroups) +
                                              " groups already, which is the most"};
  }
  Run run;
  run.id = request.run;
  if (const Run* const before = find(request.run)) run = *before;
  const bool begins = !former && request.in_use_bytes <= Bytes(0);
  if (former && *former != request.group) remove(request.run);
  Group& group = groups_[request.group];
  if (!run.pinned) run.asked = request.share_bytes.count();
  run.floor = request.floor_bytes.count();
  // What it says now may be older than what it confirmed: the larger counts until the order that
  // follows is confirmed.
  run.confirmed = std::max(former ? run.confirmed : 0, clamped(request.in_use_bytes));
  run.lost = false;
  run.begun = run.begun || request.in_use_bytes > Bytes(0);
  run.exact = true;
  run.tell = !begins;
  const auto place = std::ranges::find(group.runs, request.run, &Run::id);
  Run& member = place == group.runs.end() ? group.runs.emplace_back() : *place;
  member = std::move(run);
  group_of_[request.run] = request.group;
  update_shares(group);
  if (begins) {
    // Its first step is under the budget that the answer names: nothing to confirm.
    const std::int64_t target = targets(group)[static_cast<std::size_t>(&member - &group.runs[0])];
    const std::int64_t free = group.total.value_or(kMostBytes.count()) - assigned(group);
    member.confirmed = std::clamp<std::int64_t>(free, 0, target);
  }
  rebalance(group);
  return ordered(request.run);
}

Bytes BudgetGroups::begin(const std::string& run) {
  Run* const member = find(run);
  if (member == nullptr) return Bytes(0);
  if (member->begun) return Bytes(member->ordered());
  member->begun = true;
  member->confirmed = std::max(member->ordered(), member->floor);
  member->orders.clear();
  member->confirmed_number = last_number_;  // of what it may have been told while it waited
  rebalance(groups_[group_of_[run]]);
  return Bytes(member->ordered());
}

Bytes BudgetGroups::in_use(const std::string& run) const {
  const Run* const member = find(run);
  return Bytes(member == nullptr ? 0 : member->confirmed);
}

Bytes BudgetGroups::ordered(const std::string& run) const {
  const Run* const member = find(run);
  return Bytes(member == nullptr ? 0 : member->ordered());
}

void BudgetGroups::leave(const std::string& run) {
  const auto group = group_of(run);
  if (!group) return;
  remove(run);
  const auto left = groups_.find(*group);
  if (left == groups_.end()) return;
  update_shares(left->second);
  rebalance(left->second);
}

void BudgetGroups::lost(const std::string& run) {
  Run* const silent = find(run);
  if (silent == nullptr || silent->lost) return;
  silent->lost = true;
  rebalance(groups_[group_of_[run]]);
}

void BudgetGroups::need(const std::string& run, Bytes need_bytes) {
  Run* const member = find(run);
  if (member == nullptr) return;
  const std::int64_t before = member->need();
  member->need_now = std::max(member->need_now, clamped(need_bytes));
  if (++member->reports >= options_.need_window) {
    member->need_before = std::exchange(member->need_now, 0);
    member->reports = 0;
    member->first_window = false;
  }
  if (member->need() != before) rebalance(groups_[group_of_[run]]);
}

Result<void> BudgetGroups::set_share(const std::string& run, Bytes share_bytes) {
  Run* const member = find(run);
  if (member == nullptr) return not_member(run);
  if (!in_range(share_bytes) || share_bytes == Bytes(0)) return out_of_range("budget", share_bytes);
  if (share_bytes.count() < member->floor) {
    return invalid_argument("budget " + format_bytes(share_bytes) + ": run '" + run +
                            "' needs at least " + format_bytes(Bytes(member->floor)));
  }
  Group& group = groups_[group_of_[run]];
  if (group.total) {
    std::int64_t left = *group.total;
    for (const Run& other : group.runs) left -= &other == member ? 0 : other.share;
    if (share_bytes.count() > left) {
      return over_budget("budget " + format_bytes(share_bytes) + ": group '" + group_of_[run] +
                         "' of " + format_bytes(Bytes(*group.total)) + " has " +
                         format_bytes(Bytes(std::max<std::int64_t>(left, 0))) + " left for run '" +
                         run + "'");
    }
  }
  member->asked = share_bytes.count();
  member->pinned = true;
  member->exact = true;
  update_shares(group);
  rebalance(group);
  return {};
}

void BudgetGroups::confirm(const std::string& run, std::uint64_t number) {
  Run* const member = find(run);
  if (member == nullptr || number <= member->confirmed_number) return;
  // An order that is missing in between was no larger than the one after it.
  const auto reached = std::ranges::find_if(
      member->orders, [number](const Order& order) { return order.number >= number; });
  if (reached == member->orders.end()) return;
  member->confirmed = reached->bytes;
  member->confirmed_number = number;
  member->orders.erase(member->orders.begin(),
                       reached->number == number ? std::next(reached) : reached);
  rebalance(groups_[group_of_[run]]);
}

void BudgetGroups::takes_no_less(const std::string& run, Bytes budget_bytes) {
  Run* const member = find(run);
  if (member == nullptr) return;
  member->floor = std::max(member->floor, clamped(budget_bytes));
  changed_itself(run, budget_bytes);
}

void BudgetGroups::changed_itself(const std::string& run, Bytes budget_bytes) {
  Run* const member = find(run);
  if (member == nullptr) return;
  member->confirmed = std::max(member->confirmed, clamped(budget_bytes));
  member->tell = true;
  member->exact = true;
  rebalance(groups_[group_of_[run]]);
}

std::vector<BudgetOrder> BudgetGroups::take_orders() const {
  std::vector<BudgetOrder> out;
  for (const auto& [name, group] : groups_) {
    for (const Run& run : group.runs) {
      if (run.lost || run.orders.empty()) continue;
      out.push_back({run.id, run.orders.back().number, Bytes(run.orders.back().bytes)});
    }
  }
  return out;
}

std::optional<std::string> BudgetGroups::group_of(const std::string& run) const {
  const auto found = group_of_.find(run);
  return found == group_of_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<GroupView> BudgetGroups::view() const {
  std::vector<GroupView> out;
  for (const auto& [name, group] : groups_) out.push_back(view_of(name, group));
  return out;
}

Result<GroupView> BudgetGroups::view(const std::string& group) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) {
    return Error{ErrorCode::kNotFound, "no group '" + group + "'"};
  }
  return view_of(found->first, found->second);
}

GroupView BudgetGroups::view_of(const std::string& name, const Group& group) {
  GroupView out;
  out.name = name;
  out.assigned_bytes = Bytes(assigned(group));
  if (group.total) {
    out.total_bytes = std::max(Bytes(*group.total), out.assigned_bytes);
    if (out.total_bytes != Bytes(*group.total)) out.pending_total_bytes = Bytes(*group.total);
  }
  for (const Run& run : group.runs) {
    GroupMember member{
        run.id,       Bytes(run.share), Bytes(run.floor), Bytes(run.need()), Bytes(run.confirmed),
        std::nullopt, run.lost};
    if (!run.orders.empty()) member.pending_bytes = Bytes(run.orders.back().bytes);
    out.runs.push_back(std::move(member));
  }
  return out;
}

const BudgetGroups::Run* BudgetGroups::find(const std::string& run) const {
  const auto group = group_of_.find(run);
  if (group == group_of_.end()) return nullptr;
  const std::vector<Run>& runs = groups_.at(group->second).runs;
  const auto found = std::ranges::find(runs, run, &Run::id);
  return found == runs.end() ? nullptr : &*found;
}

BudgetGroups::Run* BudgetGroups::find(const std::string& run) {
  return const_cast<Run*>(std::as_const(*this).find(run));
}

void BudgetGroups::remove(const std::string& run) {
  const auto group = groups_.find(group_of_[run]);
  group_of_.erase(run);
  std::erase_if(group->second.runs, [&run](const Run& member) { return member.id == run; });
  if (group->second.runs.empty() && !group->second.total) groups_.erase(group);
}

}  // namespace pudica::daemon
