#include "daemon/budget_ledger.h"

#include <algorithm>

#include "base/log.h"

namespace pudica::daemon {
namespace {

template <typename Item>
const Item* find(const std::map<std::string, Item>& items, const std::string& key) {
  const auto found = items.find(key);
  return found == items.end() ? nullptr : &found->second;
}

// But for what it could use: a restart may know that too late.
StoredGroupRun promise_of(StoredGroupRun run) {
  run.need_bytes = 0;
  run.need_known = false;
  return run;
}

}  // namespace

StoredGroups BudgetLedger::read() {
  replacements_ = archive_.replacements();
  auto kept = archive_.groups();
  if (!kept) {
    log_warn("budget groups of the daemon before this one are not known: " + kept.error().message);
    return {};
  }
  note(*kept);
  return std::move(*kept);
}

bool BudgetLedger::covers(const StoredGroups& now) const {
  if (archive_.replacements() != replacements_) return false;
  if (groups_.size() != now.groups.size() || runs_.size() != now.runs.size()) return false;
  return std::ranges::all_of(now.groups,
                             [this](const StoredGroup& group) {
                               const StoredGroup* const kept = find(groups_, group.name);
                               return kept != nullptr && *kept == group;
                             }) &&
         std::ranges::all_of(now.runs, [this](const StoredGroupRun& run) {
           const StoredGroupRun* const kept = find(runs_, run.id);
           return kept != nullptr && promise_of(*kept) == promise_of(run);
         });
}

bool BudgetLedger::write(const StoredGroups& now) {
  Result<void> saved;
  // Twice: the first try may find the file damaged, and put an empty one in its place.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (const std::int64_t seen = archive_.replacements(); seen != replacements_) {
      replacements_ = seen;
      groups_.clear();
      runs_.clear();
    }
    const StoredGroupChanges changes = changes_to(now);
    if (changes.empty()) return true;
    saved = archive_.save_groups(changes);
    if (saved) break;
  }
  if (!saved && !failing_) {
    log_warn("budget groups are not kept, and no run is raised until they are: " +
             saved.error().message);
  }
  if (saved && failing_) log_info("budget groups are kept again");
  failing_ = !saved;
  if (saved) note(now);
  return !failing_;
}

std::int64_t BudgetLedger::kept_bytes(const std::string& run) const {
  const StoredGroupRun* const kept = find(runs_, run);
  return kept == nullptr ? 0 : kept->bound_bytes;
}

StoredGroupChanges BudgetLedger::changes_to(const StoredGroups& now) const {
  StoredGroupChanges out;
  for (const StoredGroup& group : now.groups) {
    const StoredGroup* const kept = find(groups_, group.name);
    if (kept == nullptr || *kept != group) out.saved.groups.push_back(group);
  }
  for (const StoredGroupRun& run : now.runs) {
    const StoredGroupRun* const kept = find(runs_, run.id);
    if (kept == nullptr || *kept != run) out.saved.runs.push_back(run);
  }
  for (const auto& [name, kept] : groups_) {
    if (std::ranges::find(now.groups, name, &StoredGroup::name) == now.groups.end()) {
      out.removed_groups.push_back(name);
    }
  }
  for (const auto& [id, kept] : runs_) {
    if (std::ranges::find(now.runs, id, &StoredGroupRun::id) == now.runs.end()) {
      out.removed_runs.push_back(id);
    }
  }
  return out;
}

void BudgetLedger::note(const StoredGroups& kept) {
  groups_.clear();
  runs_.clear();
  for (const StoredGroup& group : kept.groups) groups_[group.name] = group;
  for (const StoredGroupRun& run : kept.runs) runs_[run.id] = run;
}

}  // namespace pudica::daemon
