// Questions to what was learned: explain, estimate, models; the metrics.
#include <algorithm>

#include "base/log.h"
#include "base/safe_text.h"
#include "daemon/api.h"
#include "daemon/asked_run.h"
#include "daemon/metrics.h"

namespace pudica::daemon {
namespace {

using inspect::Json;

struct Question {
  std::string shape;
  Bytes budget_bytes{0};
};

// The budget left out is the run's own.
Result<Question> question_of(const ApiRequest& request, const AskedRun& run) {
  const auto shape = request.query.find("shape");
  if (shape == request.query.end() || shape->second.empty()) {
    return invalid_argument("shape: missing, expected one such as shape=12x384");
  }
  Question out{shape->second, run.budget_bytes};
  const auto budget = request.query.find("budget");
  if (budget == request.query.end()) return out;
  auto bytes = parse_bytes(budget->second);
  if (!bytes) return bytes.error().with_context("budget");
  if (*bytes <= Bytes(0)) return invalid_argument("budget: 0, expected at least one byte");
  out.budget_bytes = *bytes;
  return out;
}

// Of those lost, which an alert is to name: not for ever.
constexpr std::int64_t kLostToldSeconds = 3600;

// The runs that were lost lately.
std::vector<RunSummary> lost_of(std::vector<RunSummary> runs, std::int64_t unix_seconds) {
  std::erase_if(runs, [unix_seconds](const RunSummary& run) {
    return run.phase != RunPhase::kLost ||
           unix_seconds - run.ended_at.value_or(0) >= kLostToldSeconds;
  });
  return runs;
}

}  // namespace

Api::Asked Api::find_asked(const std::string& id_or_name) const {
  const Found found = find(id_or_name);
  if (found.run) return {asked_run(*found.run), {}};
  if (found.refusal.status != 404) return {std::nullopt, found.refusal};
  const auto kept = parts_.archive.run(id_or_name);
  if (!kept) return {std::nullopt, found.refusal};
  return {asked_run(*kept, parts_.archive.plans(id_or_name).value_or(Json())), {}};
}

ApiReply Api::get_estimate(const ApiRequest& request) {
  const Asked asked = find_asked(request.captures.at(0));
  if (!asked.run) return asked.refusal;
  const auto question = question_of(request, *asked.run);
  if (!question) return error_reply(question.error());
  const auto view = parts_.models.view(*asked.run);
  if (!view) return error_reply(view.error());
  auto estimate = (*view)->estimate(question->shape, question->budget_bytes);
  if (!estimate) return error_reply(estimate.error());
  estimate->learned_step = asked.run->learned_step;
  // Under its own budget the run's plan counts, not the one that would be made now.
  if (question->budget_bytes == asked.run->budget_bytes) {
    const auto held = held_plan(*asked.run, estimate->key.to_named_string());
    if (held) take_held_plan(*estimate, *held);
  }
  ApiReply reply;
  reply.body = to_json(*estimate, asked.run->id);
  return reply;
}

ApiReply Api::get_explain(const ApiRequest& request) {
  const Asked asked = find_asked(request.captures.at(0));
  if (!asked.run) return asked.refusal;
  const auto question = question_of(request, *asked.run);
  if (!question) return error_reply(question.error());
  const auto view = parts_.models.view(*asked.run);
  if (!view) return error_reply(view.error());
  auto explanation = (*view)->explain(question->shape, question->budget_bytes);
  if (!explanation) return error_reply(explanation.error());
  if (question->budget_bytes == asked.run->budget_bytes) {
    if (const auto held = held_plan(*asked.run, explanation->key.to_named_string())) {
      auto own = (*view)->explain(question->shape, question->budget_bytes, held->modes);
      if (own) {
        take_held_plan(*own, *held);
        explanation = std::move(own);
      }
    }
  }
  ApiReply reply;
  reply.body = to_json(*explanation, asked.run->id);
  return reply;
}

ApiReply Api::get_models(const ApiRequest& /*request*/) {
  ApiReply reply;
  reply.body = to_json(parts_.models.stats());
  return reply;
}

ApiReply Api::get_model(const ApiRequest& request) {
  const std::string& fingerprint = request.captures.at(0);
  auto state = parts_.models.state(fingerprint);
  if (!state)
    return error_reply(404, "nothing is learned of the fingerprint '" + fingerprint + "'");
  return json_reply(200, {{"fingerprint", fingerprint}, {"state", std::move(*state)}});
}

ApiReply Api::delete_model(const ApiRequest& request) {
  const std::string& fingerprint = request.captures.at(0);
  if (const auto refused = refuse_operating(request.caller, "a learned model")) return *refused;
  if (!parts_.models.remove(fingerprint)) {
    return error_reply(404, "nothing is learned of the fingerprint '" + fingerprint + "'");
  }
  log_info("model removed: fingerprint=" + log_value(fingerprint));
  return json_reply(200, {{"fingerprint", fingerprint}});
}

ApiReply Api::get_metrics(const ApiRequest& /*request*/) {
  DaemonMetrics daemon;
  daemon.version = facts_.version;
  daemon.uptime_seconds = parts_.clock.monotonic_seconds() - started_;
  {
    const std::lock_guard lock(answers_mutex_);
    daemon.answers = answers_;
  }
  daemon.events = counters_.events;
  daemon.runs_registered = counters_.runs_registered;
  daemon.open_connections = static_cast<std::int64_t>(counters_.open_connections());
  daemon.models = static_cast<std::int64_t>(parts_.models.stats().size());
  const ArchiveStats archive = parts_.archive.stats();
  daemon.database_bytes = archive.bytes;
  daemon.written = archive.writer.written;
  daemon.dropped_writes = archive.writer.dropped;
  ApiReply reply;
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  const std::vector<RunSummary> live = parts_.registry.list(RunRegistry::Which::kLive);
  const std::vector<RunSummary> lost =
      lost_of(parts_.registry.list(RunRegistry::Which::kAll), parts_.clock.unix_seconds());
  reply.body = to_prometheus(daemon, live, lost, parts_.budgets.view());
  return reply;
}

}  // namespace pudica::daemon
