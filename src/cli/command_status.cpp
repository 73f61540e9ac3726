// `pudica status`, `pudica models`, `pudica models rm`, `pudica prune`.
#include <ctime>
#include <ostream>
#include <utility>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/row_fields.h"
#include "cli/view_runs.h"

namespace pudica::cli {
namespace {

std::vector<const Json*> pointers(const Json& values) {
  std::vector<const Json*> out;
  for (const Json& value : values) out.push_back(&value);
  return out;
}

// The fingerprint that is so, or the only one that begins so.
Result<std::string> fingerprint_of(const Json& models, const std::string& given) {
  std::vector<std::string> found;
  for (const Json& model : models) {
    std::string fingerprint = text(model, "fingerprint");
    if (fingerprint == given) return fingerprint;
    if (fingerprint.starts_with(given)) found.push_back(std::move(fingerprint));
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return Error{ErrorCode::kNotFound, "no model has a fingerprint that begins with '" + given +
                                           "'; `pudica models` lists them"};
  }
  std::string all;
  for (const std::string& one : found) all += (all.empty() ? "" : ", ") + one;
  return invalid_argument("which model? expected one of: " + all);
}

int one_run(Session& session) {
  auto run = session.daemon.get(run_target(session.arguments.run));
  if (!run) return fail(session, run.error());
  if (session.arguments.json) return print_json(session, {{"runs", Json::array({*run})}});
  if (!session.arguments.format.empty()) {
    return print_formatted(session, known_run_fields(), {&*run});
  }
  if (session.style.terminal) {
    print_run_details(session.out, *run, {session.style, std::time(nullptr)});
  } else {
    print_fields(session.out, run_fields(), {&*run});
  }
  return kExitDone;
}

}  // namespace

int status_command(Session& session) {
  if (!session.arguments.run.empty()) return one_run(session);
  const auto answer = session.daemon.get(session.arguments.all ? "/v1/runs?all=true" : "/v1/runs");
  if (!answer) return fail(session, answer.error());
  if (session.arguments.json) return print_json(session, *answer);
  const Json& runs = list(*answer, "runs");
  if (!session.arguments.format.empty()) {
    return print_formatted(session, known_run_fields(), pointers(runs));
  }
  if (!session.style.terminal) {
    print_fields(session.out, run_fields(), pointers(runs));
    return kExitDone;
  }
  if (runs.empty()) {
    session.out << (session.arguments.all ? "No run was ever registered" : "No run is registered")
                << "; `pudica doctor` says why.\n";
    return kExitDone;
  }
  print_run_table(session.out, runs, {session.style, std::time(nullptr)});
  const Json& groups = list(*answer, "groups");
  if (!groups.empty()) {
    session.out << '\n';
    print_group_table(session.out, groups, session.style);
  }
  return kExitDone;
}

std::string last_teacher(const Json& model) {
  const Json& runs = list(model, "taught_by");
  return runs.empty() || !runs.back().is_string() ? "-" : runs.back().get<std::string>();
}

int models_command(Session& session) {
  const auto answer = session.daemon.get("/v1/models");
  if (!answer) return fail(session, answer.error());
  if (session.arguments.json) return print_json(session, *answer);
  const Json& models = list(*answer, "models");
  if (!session.arguments.format.empty()) {
    return print_formatted(session, known_model_fields(), pointers(models));
  }
  if (!session.style.terminal) {
    print_fields(session.out,
                 {"fingerprint", "bytes", "recorded_steps", "distinct_shapes", "runs", "updated_at",
                  "taught_by"},
                 pointers(models));
    return kExitDone;
  }
  if (models.empty()) {
    session.out << "No model was learned yet.\n";
    return kExitDone;
  }
  Table table({{"SIZE", true},
               {"STEPS", true},
               {"SHAPES", true},
               {"RUNS", true},
               {"UPDATED", true},
               {"LAST BY", false},
               {"FINGERPRINT", false, true}});
  for (const Json& model : models) {
    table.add({{bytes_text(integer(model, "bytes"))},
               {count_text(integer(model, "recorded_steps"))},
               {count_text(integer(model, "distinct_shapes"))},
               {count_text(integer(model, "runs"))},
               {age_text(text(model, "updated_at"), std::time(nullptr))},
               {last_teacher(model)},
               {sanitised(text(model, "fingerprint"), session.style)}});
  }
  table.print(session.out, session.style);
  return kExitDone;
}

int models_rm_command(Session& session) {
  const auto answer = session.daemon.get("/v1/models");
  if (!answer) return fail(session, answer.error());
  const auto fingerprint = fingerprint_of(list(*answer, "models"), session.arguments.fingerprint);
  if (!fingerprint) return fail(session, fingerprint.error());
  const auto removed = session.daemon.remove("/v1/models/" + url_escape(*fingerprint));
  if (!removed) return fail(session, removed.error());
  if (session.arguments.json) return print_json(session, *removed);
  if (!session.style.terminal) {
    print_fields(session.out, {"fingerprint"}, {&*removed});
    return kExitDone;
  }
  session.out << "Forgotten: " << sanitised(*fingerprint, session.style) << '\n';
  return kExitDone;
}

int prune_command(Session& session) {
  constexpr std::int64_t kDaySeconds = 86400;
  const auto answer = session.daemon.post(
      "/v1/prune", {{"older_than_seconds", session.arguments.days * kDaySeconds}});
  if (!answer) return fail(session, answer.error());
  if (session.arguments.json) return print_json(session, *answer);
  if (!session.style.terminal) {
    print_fields(session.out, {"removed_runs", "database_bytes"}, {&*answer});
    return kExitDone;
  }
  session.out << "Removed " << count_text(integer(*answer, "removed_runs"))
              << " ended runs; the database holds "
              << bytes_text(integer(*answer, "database_bytes")) << ".\n";
  return kExitDone;
}

}  // namespace pudica::cli
