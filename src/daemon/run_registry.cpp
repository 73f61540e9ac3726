#include "daemon/run_registry.h"

#include <algorithm>
#include <string_view>

namespace pudica::daemon {
namespace {

constexpr std::size_t kIdCharacters = 6;
constexpr std::size_t kMaxIdCharacters = 32;
// Without what is misread: 0 o, 1 l i.
constexpr std::string_view kAlphabet = "23456789abcdefghjkmnpqrstuvwxyz";

bool usable_id(const std::string& id) {
  return !id.empty() && id.size() <= kMaxIdCharacters &&
         std::ranges::all_of(id, [](char character) {
           return (character >= 'a' && character <= 'z') || (character >= '0' && character <= '9');
         });
}

Error no_run(const std::string& id) {
  return {ErrorCode::kNotFound, "no live run has the id '" + id + "'"};
}

std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32U) | device();
}

}  // namespace

std::chrono::milliseconds spread_wait(std::chrono::milliseconds asked, std::mt19937_64& random) {
  std::uniform_int_distribution<std::chrono::milliseconds::rep> less(0, asked.count() / 5);
  return asked - std::chrono::milliseconds(less(random));
}

RunRegistry::RunRegistry(Clock clock, RegistryLimits limits)
    : clock_(std::move(clock)), limits_(limits), random_(random_seed()) {}

void RunRegistry::set_limits(const RegistryLimits& limits) {
  const std::lock_guard lock(mutex_);
  limits_ = limits;
  while (ended_.size() > limits_.ended_runs) ended_.pop_front();
}

double RunRegistry::timeout_seconds() const {
  const std::lock_guard lock(mutex_);
  return limits_.timeout_seconds;
}

Result<std::string> RunRegistry::add(RunDescription description) {
  const std::lock_guard lock(mutex_);
  const std::int64_t now = clock_.unix_seconds();
  const std::string wanted = usable_id(description.resume) ? description.resume : std::string();
  const auto same = [&description](const Run& run) {
    const RunDescription& about = *run.state.plain().about;
    return about.user_id == description.user_id && about.pid == description.pid &&
           about.name == description.name;
  };
  RunPtr run = wanted.empty() ? nullptr : live(wanted);
  if (run == nullptr && live_.size() >= limits_.runs) {
    return Error{ErrorCode::kUnavailable, std::to_string(live_.size()) +
                                              " runs are registered, expected fewer than " +
                                              std::to_string(limits_.runs)};
  }
  if (run == nullptr && !wanted.empty()) run = take_ended(wanted);
  if (run != nullptr && same(*run)) {
    run->state.register_again(std::move(description), now);
    run->commands.clear();
  } else {
    const bool free = !wanted.empty() && live(wanted) == nullptr;
    std::string id = free ? wanted : new_id();
    run = std::make_shared<Run>(RunState(std::move(id), std::move(description), now));
    run->order = next_order_++;
  }
  run->seen_at = clock_.monotonic_seconds();
  const std::string id = run->state.plain().id;
  live_[id] = std::move(run);
  return id;
}

void RunRegistry::grant(const std::string& id, const GrantedBudget& budget) {
  const std::lock_guard lock(mutex_);
  if (const RunPtr run = live(id)) {
    run->state.grant_budget(budget.bytes, budget.source, clock_.unix_seconds());
  }
}

void RunRegistry::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (const RunPtr run = live(id)) run->changed.notify_all();
  live_.erase(id);
}

Result<RunSummary> RunRegistry::apply(const std::string& id, const EventBatch& batch) {
  const std::lock_guard lock(mutex_);
  const RunPtr run = live(id);
  if (run == nullptr) return no_run(id);
  const std::int64_t now = clock_.unix_seconds();
  run->seen_at = clock_.monotonic_seconds();
  run->state.seen(now);
  run->state.dropped(batch.dropped);
  for (const RunEvent& event : batch.events) {
    run->state.apply(event, now);
    if (run->state.plain().live()) continue;
    retire(run);
    break;  // nothing follows the end
  }
  return run->state.plain();
}

Result<std::uint64_t> RunRegistry::push_budget(const std::string& id, const GrantedBudget& budget) {
  const std::lock_guard lock(mutex_);
  const RunPtr run = live(id);
  if (run == nullptr) return no_run(id);
  const std::uint64_t seq = push(*run, {0, SetBudgetCommand{budget.bytes, budget.source}});
  run->state.ask_budget(seq, budget.bytes, budget.source);
  return seq;
}

Result<std::uint64_t> RunRegistry::push_model(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const RunPtr run = live(id);
  if (run == nullptr) return no_run(id);
  return push(*run, {0, ModelCommand{}});
}

Result<std::vector<Command>> RunRegistry::commands(const std::string& id, std::uint64_t after,
                                                   std::chrono::milliseconds wait,
                                                   const std::stop_token& gone) {
  std::unique_lock lock(mutex_);
  const RunPtr run = live(id);
  if (run == nullptr) return no_run(id);
  run->seen_at = clock_.monotonic_seconds();
  run->state.seen(clock_.unix_seconds());
  // A number that was never given out is of a daemon before this one.
  if (after >= run->next_seq) after = 0;
  std::erase_if(run->commands, [after](const Command& command) { return command.seq <= after; });
  run->changed.wait_for(lock, gone, spread_wait(wait, random_), [&] {
    return stopped_ || !run->state.plain().live() || !run->commands.empty();
  });
  if (!run->state.plain().live()) return no_run(id);
  std::vector<Command> out;
  std::ranges::copy_if(run->commands, std::back_inserter(out),
                       [after](const Command& command) { return command.seq > after; });
  return out;
}

std::vector<std::string> RunRegistry::expire() {
  const std::lock_guard lock(mutex_);
  const double now = clock_.monotonic_seconds();
  std::vector<std::string> lost;
  for (const RunPtr& run : live_in_order()) {
    if (now - run->seen_at <= limits_.timeout_seconds) continue;
    run->state.lose(clock_.unix_seconds());
    lost.push_back(run->state.plain().id);
    retire(run);
  }
  return lost;
}

void RunRegistry::forget_ended(std::int64_t until_unix_seconds) {
  const std::lock_guard lock(mutex_);
  std::erase_if(ended_, [until_unix_seconds](const RunPtr& run) {
    const auto at = run->state.plain().ended_at;
    return at && *at <= until_unix_seconds;
  });
}

void RunRegistry::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (const auto& [id, run] : live_) run->changed.notify_all();
}

std::vector<RunSummary> RunRegistry::list(Which which) const {
  const std::lock_guard lock(mutex_);
  std::vector<RunSummary> out;
  for (const RunPtr& run : live_in_order()) out.push_back(run->state.summary());
  if (which == Which::kLive) return out;
  for (const RunPtr& run : ended_) out.push_back(run->state.summary());
  return out;
}

std::vector<std::string> RunRegistry::ids_of(const std::string& id_or_name) const {
  const std::lock_guard lock(mutex_);
  if (live_.contains(id_or_name)) return {id_or_name};
  std::vector<std::string> live_named;
  std::vector<std::string> ended_named;
  for (const RunPtr& run : live_in_order()) {
    if (run->state.plain().about->name == id_or_name) live_named.push_back(run->state.plain().id);
  }
  for (const RunPtr& run : ended_) {
    if (run->state.plain().id == id_or_name) return {id_or_name};
    if (run->state.plain().about->name == id_or_name) ended_named.push_back(run->state.plain().id);
  }
  return live_named.empty() ? ended_named : live_named;
}

std::optional<std::string> RunRegistry::name_of(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const RunPtr run = live_or_ended(id);
  return run == nullptr ? std::nullopt : std::optional(run->state.plain().about->name);
}

std::optional<RunDetail> RunRegistry::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const RunPtr run = live_or_ended(id);
  return run == nullptr ? std::nullopt : std::optional(run->state.detail());
}

std::optional<RunDetail> RunRegistry::find_without_steps(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const RunPtr run = live_or_ended(id);
  return run == nullptr ? std::nullopt : std::optional(run->state.detail_without_steps());
}

std::optional<unsigned> RunRegistry::owner(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const RunPtr run = live_or_ended(id);
  return run == nullptr ? std::nullopt : std::optional(run->state.plain().about->user_id);
}

std::size_t RunRegistry::live_count() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

RunRegistry::RunPtr RunRegistry::live(const std::string& id) const {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : found->second;
}

RunRegistry::RunPtr RunRegistry::live_or_ended(const std::string& id) const {
  if (RunPtr run = live(id)) return run;
  const auto found = std::ranges::find_if(
      ended_, [&id](const RunPtr& run) { return run->state.plain().id == id; });
  return found == ended_.end() ? nullptr : *found;
}

RunRegistry::RunPtr RunRegistry::take_ended(const std::string& id) {
  const auto found = std::ranges::find_if(
      ended_, [&id](const RunPtr& run) { return run->state.plain().id == id; });
  if (found == ended_.end()) return nullptr;
  RunPtr run = *found;
  ended_.erase(found);
  return run;
}

std::string RunRegistry::new_id() {
  std::uniform_int_distribution<std::size_t> any(0, kAlphabet.size() - 1);
  for (;;) {  // the limit on runs leaves almost all ids free
    std::string id;
    for (std::size_t i = 0; i < kIdCharacters; ++i) id += kAlphabet[any(random_)];
    const bool ended = std::ranges::any_of(
        ended_, [&id](const RunPtr& run) { return run->state.plain().id == id; });
    if (!ended && !live_.contains(id)) return id;
  }
}

void RunRegistry::retire(const RunPtr& run) {
  run->changed.notify_all();
  ended_.push_back(run);
  if (ended_.size() > limits_.ended_runs) ended_.pop_front();
  live_.erase(run->state.plain().id);
}

std::uint64_t RunRegistry::push(Run& run, Command command) {
  // A newer command of a type makes the older one moot: the queue is bounded.
  std::erase_if(run.commands, [&command](const Command& queued) {
    return queued.what.index() == command.what.index();
  });
  command.seq = run.next_seq++;
  const std::uint64_t seq = command.seq;
  run.commands.push_back(std::move(command));
  run.changed.notify_all();
  return seq;
}

std::vector<RunRegistry::RunPtr> RunRegistry::live_in_order() const {
  std::vector<RunPtr> out;
  out.reserve(live_.size());
  for (const auto& [id, run] : live_) out.push_back(run);
  std::ranges::sort(out, {}, [](const RunPtr& run) { return run->order; });
  return out;
}

}  // namespace pudica::daemon
