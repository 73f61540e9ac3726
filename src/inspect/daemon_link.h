// The two conversations of a run with the daemon, one request at a time and without threads or a
// clock of their own: registering and sending events, and waiting for commands.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "inspect/daemon_transport.h"
#include "inspect/report_mailbox.h"
#include "inspect/run_protocol.h"

namespace pudica {

// Waits between attempts: from 0.1 s doubling to 10 s, each shortened by up to half at random so
// that runs do not come back all at once.
class Backoff {
 public:
  explicit Backoff(std::uint64_t seed) : random_(seed) {}
  std::chrono::milliseconds next();
  void reset() { attempts_ = 0; }

 private:
  std::mt19937_64 random_;
  int attempts_ = 0;
};

// What the conversations share. Transports and mailbox outlive them.
struct LinkContext {
  DaemonTransport& transport;
  ReportMailbox& mailbox;
  ReportClock clock;
  std::uint64_t seed = 1;
};

// Registers the run and sends what the mailbox holds. One owner thread.
class EventLink {
 public:
  EventLink(RunDescription description, LinkContext context);

  // Does what is due. Returns when to be called again.
  NextSend pump();
  // After an exception: as after a failed request.
  NextSend after_failure(const std::string& what);

 private:
  NextSend try_to_register();
  NextSend send(const ReportSession& session);
  std::vector<EventBatch> batches(Outgoing outgoing);
  // True: the daemon has taken it, or never will.
  bool post(const ReportSession& session, const EventBatch& batch);
  void refuse(std::int64_t lost, const std::string& why);

  RunDescription description_;
  LinkContext context_;
  Backoff backoff_;
  Backoff again_;  // between registrations that led to nothing
  std::chrono::milliseconds heartbeat_{5000};
  ReportTime next_attempt_{};
  ReportTime next_registration_{};
  ReportTime last_sent_{};
  int fruitless_ = 0;  // registrations since something was sent
  std::string fault_;  // of the last request
  bool warned_ = false;
};

// Waits for commands and puts them into the mailbox. One owner thread.
class CommandLink {
 public:
  CommandLink(std::string fingerprint, LinkContext context);

  // One request, which waits for a command. Returns when the next is due.
  ReportTime poll();
  ReportTime after_failure();

 private:
  void fetch_model();

  std::string fingerprint_;
  LinkContext context_;
  Backoff backoff_;
};

}  // namespace pudica
