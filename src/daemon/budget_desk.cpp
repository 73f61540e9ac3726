#include "daemon/budget_desk.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/safe_text.h"

namespace pudica::daemon {
namespace {

constexpr std::size_t kSentKept = 64;
// Of a lost run whose process we cannot see: another machine's, or another container's.
constexpr double kUnseenSeconds = 600;

}  // namespace

BudgetDesk::BudgetDesk(RunRegistry& registry, Clock clock, Archive& archive,
                       BudgetDeskOptions options)
    : registry_(registry), clock_(std::move(clock)), options_(options), ledger_(archive) {
  restore();
}

void BudgetDesk::restore() {
  const StoredGroups kept = ledger_.read();
  std::map<std::string, Bytes> totals;
  for (const StoredGroup& group : kept.groups) {
    if (group.total_bytes) totals[group.name] = Bytes(*group.total_bytes);
    if (group.file_total_bytes) file_totals_[group.name] = Bytes(*group.file_total_bytes);
  }
  std::vector<KeptMember> members;
  const double now = clock_.monotonic_seconds();
  for (const StoredGroupRun& run : kept.runs) {
    members.push_back({run.group, run.id, Bytes(run.asked_bytes), Bytes(run.floor_bytes),
                       Bytes(run.need_bytes), Bytes(run.bound_bytes), run.pinned, run.need_known});
    const ProcessMark process{run.pid, run.start_ticks};
    members_[run.id] = {process, run.instance, now, 0, {}};
  }
  groups_.restore(totals, members);
  if (members.empty()) return;
  log_info("budgets of the daemon before this one are counted until their runs come back: runs=" +
           std::to_string(members.size()));
}

StoredGroups BudgetDesk::promises() const {
  StoredGroups out;
  for (const GroupView& group : groups_.view()) {
    const auto total = groups_.total(group.name);
    const auto file = file_totals_.find(group.name);
    if (!total) continue;
    out.groups.push_back(
        {group.name, total->count(),
         file == file_totals_.end() ? std::nullopt : std::optional(file->second.count())});
  }
  for (const KeptMember& member : groups_.kept()) {
    const Member& known = members_.at(member.run);
    out.runs.push_back({member.run, member.group, known.instance, known.process.pid,
                        known.process.start_ticks, member.asked_bytes.count(),
                        member.floor_bytes.count(), member.need_bytes.count(),
                        member.bound_bytes.count(), member.pinned, member.need_known});
  }
  return out;
}

Result<GroupView> BudgetDesk::set_total(const std::string& group, Bytes total) {
  const std::lock_guard lock(mutex_);
  if (auto set = groups_.set_total(group, total); !set) return set.error();
  send_orders({});
  return groups_.view(group);
}

Result<void> BudgetDesk::set_total_of_file(const std::string& group, Bytes total) {
  const std::lock_guard lock(mutex_);
  const auto before = file_totals_.find(group);
  if (before != file_totals_.end() && before->second == total && groups_.total(group)) return {};
  if (auto set = groups_.set_total(group, total); !set) return set;
  file_totals_[group] = total;
  send_orders({});
  return {};
}

Result<std::optional<Bytes>> BudgetDesk::join(const std::string& run, const RunDescription& about) {
  std::unique_lock lock(mutex_);
  if (about.group.empty()) {
    forget(run);
    return std::optional<Bytes>();
  }
  JoinRequest request;
  request.group = about.group;
  request.run = run;
  request.share_bytes = about.budget_bytes;
  request.floor_bytes = about.floor_bytes.value_or(Bytes(0));
  if (about.budget_bytes == Bytes(0)) {  // not limited: it has a right to all that it could use
    const auto total = groups_.total(about.group);
    if (!total) return std::optional<Bytes>();
    request.share_bytes = std::min(about.keep_all_bytes.value_or(*total), *total);
  }
  // A run that has begun uses what it says that it uses. One without an instance is of a version
  // that does not say so after its first registration.
  const bool says = !about.instance.empty();
  const bool under_way = about.steps_done > 0 || (!says && !about.resume.empty());
  if (under_way) request.in_use_bytes = request.share_bytes;
  const auto granted = groups_.join(request);
  if (!granted) return granted.error();
  members_[run] = {mark_process(about.pid), about.instance, std::nullopt, 0, {}};
  send_orders({});
  if (!under_way) {
    const auto fits = [&] { return stopped_ || groups_.ordered(run) >= request.floor_bytes; };
    if (!moved_.wait_for(lock, options_.room_wait, fits)) {
      log_warn("group over its total: name=" + log_value(about.group) + " run=" + run +
               " begins with " + format_bytes(request.floor_bytes) + ", which it needs at least");
    }
    groups_.begin(run);
    send_orders({});
  }
  return std::optional(groups_.ordered(run));
}

std::string BudgetDesk::id_of(const std::string& instance) const {
  if (instance.empty()) return {};
  const std::lock_guard lock(mutex_);
  for (const auto& [run, member] : members_) {
    if (member.instance == instance) return run;
  }
  return {};
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
    took(run, event);
  }
  send_orders({});
}

void BudgetDesk::took(const std::string& run, const BudgetEvent& event) {
  Member& known = members_[run];
  Sent last;
  for (const Sent& sent : known.sent) {
    if (sent.seq <= event.seq) last = sent;
  }
  std::erase_if(known.sent, [&event](const Sent& sent) { return sent.seq <= event.seq; });
  if (last.number > 0) groups_.confirm(run, last.number);
  if (last.seq == event.seq && event.budget_bytes > last.bytes) {
    groups_.takes_no_less(run, event.budget_bytes);
  } else if (event.budget_bytes > groups_.in_use(run)) {
    groups_.changed_itself(run, event.budget_bytes);
  }
}

void BudgetDesk::on(const std::string& run, const NeedEvent& event) {
  const std::lock_guard lock(mutex_);
  if (!groups_.group_of(run)) return;
  groups_.need(run, event.bytes);
  send_orders({});
}

void BudgetDesk::ended(const std::string& run) {
  const std::lock_guard lock(mutex_);
  forget(run);
}

void BudgetDesk::forget(const std::string& run) {
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
    forget(run);
  }
  send_orders({});  // what could not be kept before
  ledger_.write(promises());
}

void BudgetDesk::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  moved_.notify_all();
}

std::vector<GroupView> BudgetDesk::view() const {
  const std::lock_guard lock(mutex_);
  return groups_.view();
}

void BudgetDesk::send_orders(const std::string& operators_run) {
  const StoredGroups now = promises();
  const bool kept = ledger_.covers(now) || ledger_.write(now);
  for (const BudgetOrder& order : groups_.take_orders()) {
    // Not to be said yet: a daemon after this one would not know of it.
    if (!kept && order.budget_bytes.count() > ledger_.kept_bytes(order.run)) continue;
    Member& member = members_[order.run];
    if (order.number <= member.last_number) continue;
    const char* const source = order.run == operators_run ? "operator" : "group";
    const auto seq = registry_.push_budget(order.run, {order.budget_bytes, source});
    if (!seq) continue;  // it ended a moment ago: its leave() follows
    member.last_number = order.number;
    member.sent.push_back({*seq, order.number, order.budget_bytes});
    if (member.sent.size() > kSentKept) member.sent.pop_front();
  }
  moved_.notify_all();
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
