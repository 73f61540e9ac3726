#include "inspect/daemon_link.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "inspect/json_values.h"

namespace pudica {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kFirstDelay{100};
constexpr milliseconds kLongestDelay{10000};
constexpr milliseconds kRegisterTimeout{5000};
constexpr milliseconds kSendTimeout{10000};
constexpr seconds kPollWait{25};
constexpr milliseconds kSendEvery{1000};
// An empty answer that comes sooner than asked for: not to be asked for again at once.
constexpr milliseconds kEarly{1000};
constexpr int kFirstClientError = 400;
constexpr int kNotFound = 404;
constexpr int kUpgradeRequired = 426;
constexpr int kFirstServerError = 500;
constexpr std::size_t kMostStepsBytes = std::size_t{1} << 20U;
constexpr std::size_t kMostTextBytes = kMaxBodyBytes - kMostStepsBytes - (std::size_t{1} << 19U);

// About what an event takes as text.
std::size_t text_size(const RunEvent& event) {
  constexpr std::size_t kRecord = 400;
  constexpr std::size_t kMode = 14;
  const auto* const step = std::get_if<StepEvent>(&event);
  return step == nullptr ? kRecord : kRecord + kMode * step->record.modes.size();
}

std::string text_of(const SnapshotOffer& snapshot) {
  if (const auto* text = std::get_if<std::string>(&snapshot)) return *text;
  return snapshot_to_json(std::get<ControllerSnapshot>(snapshot));
}

std::int64_t steps_in(const EventBatch& batch) {
  return std::ranges::count_if(
      batch.events, [](const RunEvent& event) { return std::holds_alternative<StepEvent>(event); });
}

// Back into the form that the mailbox holds.
void restore(EventBatch& batch, Outgoing& outgoing) {
  for (RunEvent& event : batch.events) {
    if (auto* need = std::get_if<NeedEvent>(&event)) {
      outgoing.need = need->bytes;
    } else if (auto* snapshot = std::get_if<SnapshotEvent>(&event)) {
      outgoing.snapshot = std::move(snapshot->snapshot);
    } else if (auto* model = std::get_if<ModelEvent>(&event)) {
      outgoing.model = std::move(model->state);
    } else if (auto* end = std::get_if<EndEvent>(&event)) {
      outgoing.end = std::move(end->status);
    } else {
      outgoing.events.push_back(std::move(event));
    }
  }
}

// Numbers that a daemon gone mad might send.
milliseconds heartbeat_of(const Registration& registration) {
  const double asked = std::min(registration.heartbeat_seconds, registration.timeout_seconds / 2);
  return milliseconds(static_cast<std::int64_t>(std::clamp(asked, 0.2, 60.0) * 1000));
}

}  // namespace

milliseconds Backoff::next() {
  constexpr int kMostDoublings = 7;  // 12.8 s
  const auto full =
      std::min(kLongestDelay, kFirstDelay * (1 << std::min(attempts_, kMostDoublings)));
  ++attempts_;
  std::uniform_real_distribution<double> share(0.5, 1.0);
  return milliseconds(
      static_cast<std::int64_t>(static_cast<double>(full.count()) * share(random_)));
}

EventLink::EventLink(RunDescription description, LinkContext context)
    : description_(std::move(description)),
      context_(std::move(context)),
      backoff_(context_.seed),
      again_(context_.seed) {}

NextSend EventLink::pump() {
  ReportMailbox& mailbox = context_.mailbox;
  const ReportTime now = context_.clock();
  const bool last_chance = mailbox.has_end();
  if (now < next_attempt_ && !last_chance) return {next_attempt_, false};
  const auto session = mailbox.session();
  if (!session) {
    if (now < next_registration_ && !last_chance) return {next_registration_, false};
    return try_to_register();
  }
  const bool due = now - last_sent_ >= heartbeat_ || mailbox.urgent() ||
                   (mailbox.has_events() && now - last_sent_ >= kSendEvery);
  if (due) return send(*session);
  // A record that comes later wakes nobody: look again within the second.
  return {std::min(last_sent_ + heartbeat_, now + kSendEvery / 4), true};
}

NextSend EventLink::after_failure(const std::string& what) {
  context_.mailbox.contact_lost(what);
  next_attempt_ = context_.clock() + backoff_.next();
  return {next_attempt_, false};
}

NextSend EventLink::try_to_register() {
  ReportMailbox& mailbox = context_.mailbox;
  mailbox.put_in_force(description_);
  description_.steps_done = std::max(description_.steps_done, mailbox.steps_begun());
  const auto reply = context_.transport.post("/v1/runs", to_json(description_), kRegisterTimeout);
  if (!reply) return after_failure(reply.error().message);
  if (reply->status == kUpgradeRequired) {
    const std::string reason = "pudicad speaks another protocol: " + error_message(*reply);
    log_warn(reason + "; this run reports nothing");
    mailbox.stop_for_good(reason);
    return {context_.clock() + kLongestDelay, false};
  }
  if (!reply->ok()) return after_failure("pudicad refuses this run: " + error_message(*reply));
  auto registration = parse_registration(reply->body);
  if (!registration) return after_failure(registration.error().message);
  if (registration->id.empty()) {
    return after_failure("registration: id is empty, expected the name of the run");
  }
  heartbeat_ = heartbeat_of(*registration);
  description_.resume = registration->id;
  const ReportTime now = context_.clock();
  last_sent_ = now - kSendEvery;  // what has waited goes at once
  // A daemon that takes the run and then does not know it is not asked again at once.
  next_attempt_ = now;
  next_registration_ = now + (fruitless_++ == 0 ? milliseconds(0) : again_.next());
  mailbox.registered(*registration, description_);
  return {now, true};
}

void EventLink::refuse(std::int64_t lost, const std::string& why) {
  context_.mailbox.lose(lost);
  if (!warned_) log_warn(why);
  warned_ = true;
}

std::vector<EventBatch> EventLink::batches(Outgoing outgoing) {
  std::vector<EventBatch> out(1);
  std::size_t bytes = 0;
  const auto add = [&](RunEvent event, std::size_t size, std::size_t most) {
    const bool full = bytes + size > most || out.back().events.size() >= kMaxEventsPerBatch;
    if (full && !out.back().events.empty()) {
      out.emplace_back();
      bytes = 0;
    }
    bytes += size;
    out.back().events.push_back(std::move(event));
  };
  const auto add_text = [&](RunEvent event, std::size_t size, const char* what) {
    if (size <= kMostTextBytes) return add(std::move(event), size, kMostTextBytes);
    refuse(1, std::string(what) + " of " + std::to_string(size) +
                  " bytes is not sent to pudicad, expected at most " +
                  std::to_string(kMostTextBytes));
  };
  for (RunEvent& event : outgoing.events) {
    const std::size_t size = text_size(event);
    add(std::move(event), size, kMostStepsBytes);
  }
  if (outgoing.need) add(NeedEvent{*outgoing.need}, 0, kMostTextBytes);
  if (outgoing.model) {
    const auto lines = static_cast<std::size_t>(std::ranges::count(*outgoing.model, '\n'));
    const std::size_t size = outgoing.model->size() + lines;
    add_text(ModelEvent{std::move(*outgoing.model)}, size, "a learned state");
  }
  if (outgoing.snapshot) {
    SnapshotEvent event{text_of(*outgoing.snapshot)};
    const std::size_t size = event.snapshot.size();
    add_text(std::move(event), size, "a snapshot");
  }
  if (outgoing.end) add(EndEvent{std::move(*outgoing.end)}, 0, kMostTextBytes);
  return out;
}

bool EventLink::post(const ReportSession& session, const EventBatch& batch) {
  const auto reply = context_.transport.post("/v1/runs/" + url_escape(session.id) + "/events",
                                             to_json(batch), kSendTimeout);
  if (!reply) {
    fault_ = reply.error().message;
    return false;
  }
  if (reply->ok()) return true;
  fault_ = "pudicad refuses events: " + error_message(*reply);
  if (reply->status == kNotFound) {
    context_.mailbox.expire(session.epoch);
    return false;
  }
  if (reply->status < kFirstClientError || reply->status >= kFirstServerError) return false;
  refuse(steps_in(batch), fault_);  // it would be refused again
  return true;
}

NextSend EventLink::send(const ReportSession& session) {
  ReportMailbox& mailbox = context_.mailbox;
  auto pieces = batches(mailbox.take_outgoing());
  const bool ends = !pieces.back().events.empty() &&
                    std::holds_alternative<EndEvent>(pieces.back().events.back());
  std::size_t sent = 0;
  const auto give_back = [&] {
    Outgoing left;
    for (; sent < pieces.size(); ++sent) restore(pieces[sent], left);
    mailbox.put_back(std::move(left));
  };
  try {
    for (bool taken = true; taken && sent < pieces.size(); sent += taken ? 1 : 0) {
      pieces[sent].dropped = mailbox.dropped();
      taken = post(session, pieces[sent]);
    }
  } catch (...) {
    give_back();
    throw;
  }
  if (sent < pieces.size()) {
    give_back();
    const bool again = !mailbox.session() && fruitless_ <= 1;
    return again ? NextSend{context_.clock(), true} : after_failure(fault_);
  }
  backoff_.reset();
  again_.reset();
  fruitless_ = 0;
  last_sent_ = next_attempt_ = context_.clock();
  mailbox.contact_made();
  if (ends) mailbox.sent_end();
  return {last_sent_ + kSendEvery / 4, true};
}

CommandLink::CommandLink(std::string fingerprint, LinkContext context)
    : fingerprint_(std::move(fingerprint)),
      context_(std::move(context)),
      backoff_(context_.seed + 1) {}

ReportTime CommandLink::poll() {
  ReportMailbox& mailbox = context_.mailbox;
  const ReportTime begin = context_.clock();
  const auto session = mailbox.session();
  if (!session) return begin + kLongestDelay;
  const std::string target = "/v1/runs/" + url_escape(session->id) +
                             "/commands?after=" + std::to_string(session->after) +
                             "&wait=" + std::to_string(kPollWait.count());
  const auto reply = context_.transport.get(target, milliseconds(kPollWait) + kRegisterTimeout);
  const ReportTime now = context_.clock();
  if (reply && reply->status == kNotFound) {
    mailbox.expire(session->epoch);
    return now + backoff_.next();
  }
  if (!reply || !reply->ok()) return after_failure();
  const auto commands = parse_commands(reply->body);
  if (!commands) return after_failure();
  bool fetch = false;
  bool anything = false;
  for (const Command& command : *commands) {
    if (command.seq <= session->after) continue;
    anything = true;
    const auto* const budget = std::get_if<SetBudgetCommand>(&command.what);
    fetch = fetch || budget == nullptr;
    mailbox.deliver(session->epoch, command.seq, budget);
  }
  if (fetch) fetch_model();
  if (!anything && now - begin < kEarly) return now + backoff_.next();
  backoff_.reset();
  return now;
}

ReportTime CommandLink::after_failure() {
  context_.mailbox.ask_for_heartbeat();
  return context_.clock() + backoff_.next();
}

void CommandLink::fetch_model() {
  if (fingerprint_.empty()) return;
  const auto reply = context_.transport.get("/v1/models/" + url_escape(fingerprint_), kSendTimeout);
  if (!reply || !reply->ok()) return;
  const auto body = inspect::Json::parse(reply->body, nullptr, false);
  if (!body.is_object() || !body.contains("state") || !body["state"].is_string()) return;
  context_.mailbox.deliver_model(body["state"].get<std::string>());
}

}  // namespace pudica
