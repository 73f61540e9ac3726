// Reporter: tells the daemon of a run and brings its wishes, without the run waiting for either.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "inspect/daemon_transport.h"
#include "inspect/report_mailbox.h"
#include "inspect/run_protocol.h"
#include "pudica/bytes.h"
#include "pudica/controller.h"

namespace pudica {

struct ReporterOptions {
  RunDescription description;
  std::string socket_path;
  bool enabled = true;                // false: an idle reporter, as with PUDICA_DISABLE=1
  std::size_t queue_capacity = 1024;  // records; beyond it the oldest go and are counted
  // For tests. Null: HTTP over the socket, the steady clock.
  TransportMaker transport;
  ReportClock clock;
  std::uint64_t seed = 0;  // of the waits between attempts; 0: by process and time
};

// Two threads of its own speak to the daemon. Whatever the daemon does, or if there is none, no
// call here waits, throws, prints or aborts, but for wait_registered() and finish(), which wait for
// as long as they are told at most. Thread-safe. In a forked child it does nothing.
class Reporter {
 public:
  // Never fails: without threads it is an idle one, and status() says why.
  static std::unique_ptr<Reporter> start(ReporterOptions options);
  // Within about a second; does not wait for the daemon.
  ~Reporter();
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  void step(StepEvent event) noexcept;
  // True when something changed and the last one is 2 s old.
  [[nodiscard]] bool wants_snapshot() const noexcept;
  void snapshot(SnapshotOffer snapshot) noexcept;
  // True when the learned state changed and the last one is 5 s old.
  [[nodiscard]] bool wants_model() const noexcept;
  void model(std::string state) noexcept;
  // The learned state is worth sending, though what changed it was no learning step.
  void mark_learned() noexcept;
  // What the step that begins could use at once. Goes with the steps, the largest since the last;
  // a rise goes at once.
  void need(Bytes bytes) noexcept;
  // The daemon's latest wish that was not taken yet.
  std::optional<BudgetOrder> take_budget() noexcept;
  // `bytes` is in effect from `step` on, by the wish `seq` (0: as registered).
  void budget_applied(std::uint64_t seq, std::uint64_t step, Bytes bytes) noexcept;
  // The same by the run itself; `fraction` as in RunDescription.
  void budget_changed(std::uint64_t step, Bytes bytes, std::optional<double> fraction) noexcept;
  // The learned state that the daemon offers, once each.
  std::optional<std::string> take_model() noexcept;
  [[nodiscard]] ReporterStatus status() const noexcept;

  // At start-up: true once registered; false at once where nobody listens.
  bool wait_registered(std::chrono::milliseconds timeout) noexcept;
  // Says how the run ended ("ok", "oom", "failed", "interrupted") and stops. True: the daemon
  // knows.
  bool finish(const std::string& status, std::chrono::milliseconds timeout) noexcept;

 private:
  class Impl;
  explicit Reporter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pudica
