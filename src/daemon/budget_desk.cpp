#include "daemon/budget_desk.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace pudica::daemon {
namespace {

constexpr std::size_t kSentKept = 64;
// Of a lost run whose process we cannot see: another machine's, or another container's.
constexpr double kUnseenSeconds = 600;

}  // namespace

BudgetDesk::BudgetDesk(RunRegistry& registry, Clock clock)
    : registry_(registry), clock_(std::move(clock)) {}

Result<GroupView> BudgetDesk::set_total(const std::string& group, Bytes total) {
  const std::lock_guard lock(mutex_);
  if (auto set = groups_.set_total(group, total); !set) return set.error();
  send_orders({});
  return groups_.view(group);
}

Result<std::optional<Bytes>> BudgetDesk::join(const std::string& run, const RunDescription& about) {
  const std::lock_guard lock(mutex_);
  if (about.group.empty()) {
    groups_.leave(run);
    members_.erase(run);
    send_orders({});
    return std::optional<Bytes>();
  }
  JoinRequest request;
  request.group = about.group;
  request.run = run;
  request.share_bytes = about.budget_bytes;
  request.floor_bytes = about.floor_bytes.value_or(Bytes(0));
  if (about.budget_bytes == Bytes(0)) {  // not limited: it has a right to all that it could use
    const auto group = groups_.view(about.group);
    const auto total = group ? group->total_bytes : std::nullopt;
    if (!total) return std::optional<Bytes>();
    request.share_bytes = std::min(about.keep_all_bytes.value_or(*total), *total);
  }
  // A run that was here before, or has made steps already, uses what it says that it uses.
  const bool under_way = about.steps_done > 0 || !about.resume.empty();
  if (under_way) request.in_use_bytes = about.budget_bytes;
  const auto granted = groups_.join(request);
  if (!granted) return granted.error();
  members_[run] = {mark_process(about.pid), std::nullopt, 0, {}};
  send_orders({});
  return std::optional(*granted);
}

Result<std::uint64_t> BudgetDesk::ask(const std::string& run, Bytes budget) {
  const std::lock_guard lock(mutex_);
  if (!groups_.group_of(run)) return registry_.push_budget(run, {budget, "operator"});
  if (auto set = groups_.set_share(run, budget); !set) return set.error();
  const std::uint64_t before = members_[run].last_number;
  send_orders(run);
  const Member& member = members_[run];
  return member.last_number == before || member.sent.empty() ? 0 : member.sent.back().seq;
}

void BudgetDesk::on(const std::string& run, const BudgetEvent& event) {
  const std::lock_guard lock(mutex_);
  GroupView holder;
  const GroupMember* const member = member_view(run, holder);
  if (member == nullptr) return;
  Member& known = members_[run];
  if (event.seq == 0) {
    if (member->pending_bytes == event.budget_bytes) {
      groups_.confirm(run, known.last_number);  // the answer to its registration named it too
    } else if (member->budget_bytes != event.budget_bytes) {
      groups_.changed_itself(run, event.budget_bytes);
    }
  } else {
    std::uint64_t number = 0;
    for (const Sent& sent : known.sent) {
      if (sent.seq <= event.seq) number = sent.number;
    }
    if (number > 0) groups_.confirm(run, number);
    std::erase_if(known.sent, [&event](const Sent& sent) { return sent.seq <= event.seq; });
  }
  send_orders({});
}

void BudgetDesk::on(const std::string& run, const NeedEvent& event) {
  const std::lock_guard lock(mutex_);
  if (!groups_.group_of(run)) return;
  groups_.need(run, event.bytes);
  send_orders({});
}

void BudgetDesk::ended(const std::string& run) {
  const std::lock_guard lock(mutex_);
  if (!groups_.group_of(run)) return;
  groups_.leave(run);
  members_.erase(run);
  send_orders({});
}

void BudgetDesk::lost(const std::string& run) {
  const std::lock_guard lock(mutex_);
  if (!groups_.group_of(run)) return;
  groups_.lost(run);
  members_[run].lost_at = clock_.monotonic_seconds();
}

void BudgetDesk::tick() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> gone;
  for (const auto& [run, member] : members_) {
    if (!member.lost_at) continue;
    const ProcessState state = process_state(member.process);
    const bool given_up = state == ProcessState::kUnknown &&
                          clock_.monotonic_seconds() - *member.lost_at > kUnseenSeconds;
    if (state == ProcessState::kGone || given_up) gone.push_back(run);
  }
  for (const std::string& run : gone) {
    log_info("budget given back: run=" + run + " reason=its process is gone");
    groups_.leave(run);
    members_.erase(run);
  }
  if (!gone.empty()) send_orders({});
}

std::vector<GroupView> BudgetDesk::view() const {
  const std::lock_guard lock(mutex_);
  return groups_.view();
}

void BudgetDesk::send_orders(const std::string& operators_run) {
  for (const BudgetOrder& order : groups_.take_orders()) {
    Member& member = members_[order.run];
    if (order.number <= member.last_number) continue;
    const char* const source = order.run == operators_run ? "operator" : "group";
    const auto seq = registry_.push_budget(order.run, {order.budget_bytes, source});
    if (!seq) continue;  // it ended a moment ago: its leave() follows
    member.last_number = order.number;
    member.sent.push_back({*seq, order.number});
    if (member.sent.size() > kSentKept) member.sent.pop_front();
  }
}

const GroupMember* BudgetDesk::member_view(const std::string& run, GroupView& holder) const {
  const auto group = groups_.group_of(run);
  if (!group) return nullptr;
  auto found = groups_.view(*group);
  if (!found) return nullptr;
  holder = std::move(*found);
  const auto member = std::ranges::find(holder.runs, run, &GroupMember::id);
  return member == holder.runs.end() ? nullptr : &*member;
}

inspect::Json to_json(const GroupView& group) {
  const auto bytes_or_null = [](const std::optional<Bytes>& bytes) {
    return bytes ? inspect::Json(bytes->count()) : inspect::Json();
  };
  inspect::Json runs = inspect::Json::array();
  for (const GroupMember& member : group.runs) {
    runs.push_back({{"id", member.id},
                    {"share_bytes", member.share_bytes.count()},
                    {"floor_bytes", member.floor_bytes.count()},
                    {"need_bytes", member.need_bytes.count()},
                    {"budget_bytes", member.budget_bytes.count()},
                    {"pending_bytes", bytes_or_null(member.pending_bytes)},
                    {"lost", member.lost}});
  }
  return {{"name", group.name},
          {"total_bytes", bytes_or_null(group.total_bytes)},
          {"pending_total_bytes", bytes_or_null(group.pending_total_bytes)},
          {"assigned_bytes", group.assigned_bytes.count()},
          {"runs", std::move(runs)}};
}

}  // namespace pudica::daemon
