#include "inspect/report_mailbox.h"

#include <algorithm>
#include <utility>

namespace pudica {
namespace {

constexpr std::size_t kWorthARequest = 256;  // records
constexpr std::chrono::seconds kSnapshotEvery{2};
constexpr std::chrono::seconds kSnapshotOfOldPlans{10};
constexpr std::chrono::seconds kModelEvery{5};

}  // namespace

void ReportMailbox::add_step(StepEvent event) {
  bool full_batch = false;
  {
    const std::lock_guard lock(mutex_);
    if (status_.stopped) return;
    stepped_ = true;
    if (event.learning || event.record.plan_id.value_or(0) > last_plan_) snapshot_stale_ = true;
    if (event.learning) model_stale_ = learned_ = true;
    last_plan_ = std::max(last_plan_, event.record.plan_id.value_or(0));
    auto& events = outgoing_.events;
    while (events.size() >= capacity_) {
      const auto oldest = std::find_if(events.begin(), events.end(), [](const RunEvent& queued) {
        return std::holds_alternative<StepEvent>(queued);
      });
      events.erase(oldest == events.end() ? events.begin() : oldest);
      ++status_.dropped;
    }
    events.emplace_back(std::move(event));
    full_batch = events.size() == kWorthARequest;
  }
  if (full_batch) wake();
}

void ReportMailbox::add_budget(BudgetEvent event) {
  {
    const std::lock_guard lock(mutex_);
    if (status_.stopped) return;
    in_force_ = event;
    // The number of an order of a daemon before this one means another one now.
    if (event.seq == taken_seq_ && taken_epoch_ != epochs_) event.seq = 0;
    snapshot_stale_ = true;
    urgent_ = true;
    outgoing_.events.emplace_back(event);
    if (outgoing_.events.size() > capacity_) {
      outgoing_.events.pop_front();
      ++status_.dropped;
    }
  }
  wake();
}

void ReportMailbox::put_need(Bytes bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (status_.stopped) return;
    outgoing_.need = std::max(outgoing_.need.value_or(bytes), bytes);
    if (last_need_ && bytes <= *last_need_) return;  // with the next batch
    last_need_ = bytes;
    urgent_ = true;
  }
  wake();
}

void ReportMailbox::put_snapshot(SnapshotOffer snapshot, ReportTime now) {
  const std::lock_guard lock(mutex_);
  if (status_.stopped) return;
  outgoing_.snapshot = std::move(snapshot);
  snapshot_due_ = snapshot_stale_ = stepped_ = false;
  snapshot_at_ = now;
}

void ReportMailbox::put_model(std::string state, ReportTime now) {
  const std::lock_guard lock(mutex_);
  if (status_.stopped) return;
  outgoing_.model = std::move(state);
  model_due_ = model_stale_ = false;
  model_at_ = now;
}

void ReportMailbox::put_end(std::string status) {
  {
    const std::lock_guard lock(mutex_);
    outgoing_.end = std::move(status);
    attempts_at_end_ = failed_attempts_;
  }
  wake();
}

void ReportMailbox::mark_learned() {
  const std::lock_guard lock(mutex_);
  model_stale_ = learned_ = true;
}

std::optional<BudgetOrder> ReportMailbox::take_budget() {
  const std::lock_guard lock(mutex_);
  ++steps_begun_;
  if (budget_) taken_seq_ = budget_->seq;
  taken_epoch_ = epochs_;
  return std::exchange(budget_, std::nullopt);
}

std::optional<std::string> ReportMailbox::take_model() {
  const std::lock_guard lock(mutex_);
  return std::exchange(model_, std::nullopt);
}

bool ReportMailbox::wants_snapshot(ReportTime now) const {
  const std::lock_guard lock(mutex_);
  if (!session_ || outgoing_.snapshot) return false;
  if (snapshot_due_) return stepped_;
  const auto age = now - snapshot_at_;
  return (snapshot_stale_ && age >= kSnapshotEvery) || (stepped_ && age >= kSnapshotOfOldPlans);
}

bool ReportMailbox::wants_model(ReportTime now) const {
  const std::lock_guard lock(mutex_);
  if (!session_ || outgoing_.model || !model_stale_) return false;
  return model_due_ || now - model_at_ >= kModelEvery;
}

ReporterStatus ReportMailbox::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

bool ReportMailbox::wait_registered(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] {
    return closing_ || status_.stopped || session_.has_value() || failed_attempts_ > 0;
  });
  return session_.has_value();
}

bool ReportMailbox::wait_end_sent(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] {
    return end_sent_ || closing_ || status_.stopped ||
           failed_attempts_ > attempts_at_end_.value_or(failed_attempts_);
  });
  return end_sent_;
}

void ReportMailbox::count_dropped() { lose(1); }

bool ReportMailbox::has_end() const {
  const std::lock_guard lock(mutex_);
  return outgoing_.end.has_value();
}

bool ReportMailbox::worth_sending() const {
  return urgent_ || heartbeat_ || outgoing_.end || outgoing_.events.size() >= kWorthARequest;
}

bool ReportMailbox::urgent() const {
  const std::lock_guard lock(mutex_);
  return worth_sending();
}

bool ReportMailbox::has_events() const {
  const std::lock_guard lock(mutex_);
  return !outgoing_.empty();
}

Outgoing ReportMailbox::take_outgoing() {
  const std::lock_guard lock(mutex_);
  urgent_ = false;
  if (outgoing_.need) last_need_ = outgoing_.need;
  return std::exchange(outgoing_, Outgoing{});
}

void ReportMailbox::put_back(Outgoing outgoing) {
  const std::lock_guard lock(mutex_);
  auto& events = outgoing.events;
  events.insert(events.end(), std::make_move_iterator(outgoing_.events.begin()),
                std::make_move_iterator(outgoing_.events.end()));
  while (events.size() > capacity_) {
    events.pop_front();
    ++status_.dropped;
  }
  outgoing_.events = std::move(events);
  if (outgoing.need) {
    outgoing_.need = std::max(outgoing_.need.value_or(*outgoing.need), *outgoing.need);
  }
  if (!outgoing_.snapshot) outgoing_.snapshot = std::move(outgoing.snapshot);
  if (!outgoing_.model) outgoing_.model = std::move(outgoing.model);
  if (!outgoing_.end) outgoing_.end = std::move(outgoing.end);
}

void ReportMailbox::sent_end() {
  {
    const std::lock_guard lock(mutex_);
    end_sent_ = true;
    session_.reset();
    status_.registered = false;
    status_.stopped = true;
    status_.reason = "the run has ended";
  }
  wake();
}

void ReportMailbox::lose(std::int64_t count) {
  const std::lock_guard lock(mutex_);
  status_.dropped += count;
}

std::int64_t ReportMailbox::dropped() const {
  const std::lock_guard lock(mutex_);
  return status_.dropped;
}

void ReportMailbox::registered(const Registration& registration, const RunDescription& said) {
  {
    const std::lock_guard lock(mutex_);
    if (status_.stopped) return;
    if (epochs_ > 0) ++status_.reconnects;
    session_ = ReportSession{++epochs_, registration.id, 0};
    status_.registered = true;
    status_.id = registration.id;
    status_.reason.clear();
    failed_attempts_ = 0;
    if (attempts_at_end_) attempts_at_end_ = 0;
    if (budget_) budget_->seq = 0;  // numbers begin anew
    for (RunEvent& event : outgoing_.events) {
      if (auto* const budget = std::get_if<BudgetEvent>(&event)) budget->seq = 0;
    }
    if (said.steps_done == 0 && steps_begun_ > 0) {
      // It began while the daemon was told otherwise: with its own budget, which is to be counted.
      const auto step = static_cast<std::uint64_t>(steps_begun_);
      const BudgetEvent own{0, step, said.budget_bytes, said.budget_fraction};
      const BudgetEvent used = in_force_.value_or(own);
      outgoing_.events.emplace_back(BudgetEvent{0, step, used.budget_bytes, used.fraction});
      urgent_ = true;
    }
    if (registration.budget_bytes) budget_ = BudgetOrder{0, *registration.budget_bytes, "daemon"};
    if (registration.state) model_ = registration.state;
    if (!outgoing_.need) outgoing_.need = last_need_;
    snapshot_due_ = true;
    model_due_ = true;
    if (epochs_ > 1) model_stale_ = learned_;  // a new daemon may know nothing of it
    stepped_ = stepped_ || epochs_ > 1;
    poll_now_ = true;
    heartbeat_ = false;
  }
  wake();
}

void ReportMailbox::contact_lost(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    ++failed_attempts_;
    status_.registered = false;
    status_.reason = reason;
  }
  wake();
}

void ReportMailbox::contact_made() {
  const std::lock_guard lock(mutex_);
  heartbeat_ = false;
  if (!session_ || status_.registered) return;
  status_.registered = true;
  status_.reason.clear();
  failed_attempts_ = 0;
  if (attempts_at_end_) attempts_at_end_ = 0;
  poll_now_ = true;
  changed_.notify_all();
}

void ReportMailbox::stop_for_good(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    session_.reset();
    status_.registered = false;
    status_.stopped = true;
    status_.reason = reason;
    outgoing_ = Outgoing{};
  }
  wake();
}

void ReportMailbox::put_in_force(RunDescription& description) const {
  const std::lock_guard lock(mutex_);
  if (!in_force_) return;
  description.budget_bytes = in_force_->budget_bytes;
  description.budget_fraction = in_force_->fraction;
}

std::int64_t ReportMailbox::steps_begun() const {
  const std::lock_guard lock(mutex_);
  return steps_begun_;
}

std::optional<ReportSession> ReportMailbox::session() const {
  const std::lock_guard lock(mutex_);
  return session_;
}

void ReportMailbox::deliver(std::uint64_t epoch, std::uint64_t seq,
                            const SetBudgetCommand* budget) {
  const std::lock_guard lock(mutex_);
  if (!session_ || session_->epoch != epoch) return;
  session_->after = std::max(session_->after, seq);
  if (budget != nullptr) budget_ = BudgetOrder{seq, budget->budget_bytes, budget->source};
}

void ReportMailbox::deliver_model(std::string state) {
  const std::lock_guard lock(mutex_);
  model_ = std::move(state);
}

void ReportMailbox::expire(std::uint64_t epoch) {
  {
    const std::lock_guard lock(mutex_);
    if (!session_ || session_->epoch != epoch) return;
    session_.reset();
    status_.registered = false;
    status_.reason = "the daemon does not know this run any more";
    heartbeat_ = true;
  }
  wake();
}

void ReportMailbox::ask_for_heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    heartbeat_ = true;
  }
  wake();
}

bool ReportMailbox::take_heartbeat_request() {
  const std::lock_guard lock(mutex_);
  return std::exchange(heartbeat_, false);
}

void ReportMailbox::thread_failed(const std::string& what) {
  const std::lock_guard lock(mutex_);
  ++status_.failures;
  status_.reason = what;
}

void ReportMailbox::wait_to_send(ReportTime now, const NextSend& next) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, next.at - now, [this, &next] {
    if (closing_ || status_.stopped) return true;
    return next.wakeable ? worth_sending() : outgoing_.end && attempts_at_end_ == failed_attempts_;
  });
}

void ReportMailbox::wait_to_poll(ReportTime now, ReportTime until) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, until - now, [this] { return closing_ || poll_now_; });
  poll_now_ = false;
}

bool ReportMailbox::closing() const {
  const std::lock_guard lock(mutex_);
  return closing_;
}

void ReportMailbox::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake();
}

}  // namespace pudica
