// What is on its way between the thread that trains and the threads that speak to the daemon.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <variant>

#include "inspect/json.h"
#include "inspect/run_protocol.h"
#include "pudica/bytes.h"

namespace pudica {

using ReportTime = std::chrono::steady_clock::time_point;
using ReportClock = std::function<ReportTime()>;

// When the sender is to be called again. Not `wakeable`: the daemon is away, and only the run's end
// is worth another attempt before that.
struct NextSend {
  ReportTime at;
  bool wakeable = true;
};

// A budget that the daemon asks for. `seq` 0: with the registration.
struct BudgetOrder {
  std::uint64_t seq = 0;
  Bytes budget_bytes{0};
  std::string source;
};

// Written as text by the thread that sends it.
using SnapshotOffer = std::variant<ControllerSnapshot, std::string>;

struct ReporterStatus {
  bool registered = false;
  bool stopped = false;         // for good: off, refused by the daemon, or finished
  std::string id;               // the last one; empty: never registered
  std::string reason;           // why not registered
  std::int64_t dropped = 0;     // records, since the run began
  std::int64_t reconnects = 0;  // registrations after the first
  std::int64_t failures = 0;    // exceptions contained in the threads
};

// Everything there is to send, taken out of the mailbox.
struct Outgoing {
  std::deque<RunEvent> events;  // steps and budgets, in order
  std::optional<Bytes> need;
  std::optional<SnapshotOffer> snapshot;
  std::optional<std::string> model;
  std::optional<std::string> end;

  [[nodiscard]] bool empty() const {
    return events.empty() && !need && !snapshot && !model && !end;
  }
};

// The registration that is in force. `epoch` counts them.
struct ReportSession {
  std::uint64_t epoch = 0;
  std::string id;
  std::uint64_t after = 0;  // commands seen so far
};

// Bounded: records beyond `capacity` push out the oldest and are counted; of snapshots and models
// only the latest waits, of needs the largest. Thread-safe; no call waits but those named wait_.
class ReportMailbox {
 public:
  explicit ReportMailbox(std::size_t capacity) : capacity_(capacity) {}

  // For the thread that trains.
  void add_step(StepEvent event);
  void add_budget(BudgetEvent event);
  // Of every step; one above the last that was sent goes at once.
  void put_need(Bytes bytes);
  void put_snapshot(SnapshotOffer snapshot, ReportTime now);
  void put_model(std::string state, ReportTime now);
  void put_end(std::string status);
  void mark_learned();  // the learned state changed
  std::optional<BudgetOrder> take_budget();
  std::optional<std::string> take_model();
  [[nodiscard]] bool wants_snapshot(ReportTime now) const;
  [[nodiscard]] bool wants_model(ReportTime now) const;
  [[nodiscard]] ReporterStatus status() const;
  // Registered, or it is known that this will not be so soon, or the time is over.
  bool wait_registered(std::chrono::milliseconds timeout);
  // The end was sent, or nobody is there to take it, or the time is over.
  bool wait_end_sent(std::chrono::milliseconds timeout);
  void count_dropped();

  // For the thread that registers and sends.
  [[nodiscard]] bool has_end() const;
  // Worth a request now, not only with the next second's.
  [[nodiscard]] bool urgent() const;
  [[nodiscard]] bool has_events() const;
  Outgoing take_outgoing();
  // What could not be sent goes first again, but for what something newer has replaced.
  void put_back(Outgoing outgoing);
  void sent_end();
  // The daemon's answer to what was sent, other than success: `count` events are lost.
  void lose(std::int64_t count);
  [[nodiscard]] std::int64_t dropped() const;
  // `said` is what the daemon was told.
  void registered(const Registration& registration, const RunDescription& said);
  // A request failed: the session stays, since the daemon may know it still.
  void contact_lost(const std::string& reason);
  void contact_made();
  void stop_for_good(const std::string& reason);
  // A registration says which budget is in force.
  void put_in_force(RunDescription& description) const;
  // How many steps have begun: before the first one nothing is in use.
  [[nodiscard]] std::int64_t steps_begun() const;
  [[nodiscard]] std::optional<ReportSession> session() const;

  // For the thread that waits for commands.
  void deliver(std::uint64_t epoch, std::uint64_t seq, const SetBudgetCommand* budget);
  void deliver_model(std::string state);
  // The daemon does not know the id any more.
  void expire(std::uint64_t epoch);
  // The daemon's connection broke: time for a heartbeat.
  void ask_for_heartbeat();
  bool take_heartbeat_request();

  // For both.
  void thread_failed(const std::string& what);
  void wait_to_send(ReportTime now, const NextSend& next);
  void wait_to_poll(ReportTime now, ReportTime until);
  [[nodiscard]] bool closing() const;
  void close();  // every wait ends, from now on

 private:
  [[nodiscard]] bool worth_sending() const;  // Requires: mutex_ held
  void wake() { changed_.notify_all(); }

  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  Outgoing outgoing_;
  std::optional<ReportSession> session_;
  ReporterStatus status_;
  std::uint64_t epochs_ = 0;
  std::int64_t failed_attempts_ = 0;
  std::optional<std::int64_t> attempts_at_end_;  // when the end was put
  bool end_sent_ = false;
  bool urgent_ = false;
  bool poll_now_ = false;
  bool heartbeat_ = false;
  bool closing_ = false;
  std::optional<BudgetOrder> budget_;
  std::optional<std::string> model_;
  std::optional<BudgetEvent> in_force_;
  std::int64_t steps_begun_ = 0;
  std::uint64_t taken_seq_ = 0;    // of the last order taken
  std::uint64_t taken_epoch_ = 0;  // and the registration that it came by
  bool snapshot_due_ = false;      // of this registration none was sent
  bool snapshot_stale_ = false;
  bool model_due_ = false;
  bool model_stale_ = false;
  bool learned_ = false;  // there is a model to send
  bool stepped_ = false;  // since the last snapshot
  std::uint64_t last_plan_ = 0;
  std::optional<Bytes> last_need_;
  ReportTime snapshot_at_{};
  ReportTime model_at_{};
};

}  // namespace pudica
