// `pudica replay`: recorded steps under other policies and budgets.
#include <algorithm>
#include <filesystem>
#include <ostream>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/record_reader.h"
#include "cli/replay.h"
#include "cli/view_replay.h"
#include "config/config.h"

namespace pudica::cli {
namespace {

constexpr std::int64_t kCudaGranularity = 512;

struct Plan {
  std::vector<PolicySpec> policies;
  ControllerOptions controller;
  std::optional<Bytes> budget_bytes;
  std::string run;
  bool truncated = false;
  bool began_learned = false;  // planned from its first step on
  std::int64_t steps = 0;
  std::int64_t profiles = 0;  // steps that tell what the layers need
};

Result<ControllerOptions> controller_options(const Arguments& arguments) {
  std::string path = arguments.config;
  if (path.empty()) path = process_environment("PUDICA_CONFIG").value_or("");
  Config config;
  if (!path.empty()) {
    auto loaded = load_config(path).result();
    if (!loaded) return loaded.error();
    config = std::move(*loaded);
  }
  ControllerOptions options = compile_controller_options(config);
  if (arguments.device == "cuda") options.predictor.granularity_bytes = kCudaGranularity;
  return options;
}

// Calls `take` with every record of the file. Returns whether its last line was cut off.
template <typename Take>
Result<bool> each_record(const std::string& path, Take take) {
  auto reader = RecordReader::open(path);
  if (!reader) return reader.error();
  for (;;) {
    auto record = reader->next();
    if (!record) return record.error();
    if (!*record) break;
    take(**record);
  }
  return reader->truncated();
}

Result<std::optional<Bytes>> budget_of(const std::string& text, const RecordedModel& model) {
  if (text.empty()) return std::optional<Bytes>();
  const auto budget = parse_budget(text);
  if (!budget) return budget.error().with_context("--budget");
  switch (budget->kind) {
    case BudgetSetting::Kind::kAuto:
      return invalid_argument("--budget: 'auto' seen, expected bytes (600MiB) or a fraction (0.4)");
    case BudgetSetting::Kind::kBytes:
      return std::optional<Bytes>(budget->bytes);
    case BudgetSetting::Kind::kFraction:
    case BudgetSetting::Kind::kBetween:
      break;
  }
  const auto range = model.range();
  if (!range) return range.error().with_context("--budget " + text);
  const auto span = static_cast<double>((range->keep_all_bytes - range->floor_bytes).count());
  return std::optional<Bytes>(range->floor_bytes +
                              Bytes(static_cast<std::int64_t>(budget->fraction * span)));
}

// Prints steps as they come: nothing is held.
class StepPrinter {
 public:
  StepPrinter(Session& session, std::string policy)
      : session_(session), policy_(std::move(policy)) {}

  void print(const ReplayedStep& step) {
    if (!session_.arguments.steps) return;
    Json value = to_json(step);
    if (session_.arguments.json) {
      session_.out << (first_ ? "\n" : ",\n") << dump(value);
      first_ = false;
      return;
    }
    value["policy"] = policy_;
    std::string line;
    for (const char* name : kFields) {
      const Json& field = value[name];
      line += (line.empty() ? "" : "\t") + (field.is_null()     ? "-"
                                            : field.is_string() ? field.get<std::string>()
                                                                : dump(field));
    }
    session_.out << line << '\n';
  }
  static void header(Session& session) {
    bool first = true;
    for (const char* name : kFields) {
      session.out << (first ? "" : "\t") << name;
      first = false;
    }
    session.out << '\n';
  }

 private:
  static constexpr const char* kFields[] = {
      "policy",          "step",          "key",
      "predicted_bytes", "peak_bytes",    "planned_peak_bytes",
      "seconds",         "extra_seconds", "recomputed",
      "revocations",     "overrun",       "measured"};

  Session& session_;
  std::string policy_;
  bool first_ = true;
};

Result<ReplayRow> replay_policy(Session& session, const PolicySpec& spec, const Plan& plan,
                                const RecordedModel& model) {
  auto replay = Replay::start(spec, plan.controller, model, plan.budget_bytes);
  if (!replay) return replay.error();
  ReplayRow row{spec.text, {}};
  StepPrinter printer(session, spec.text);
  const auto done = each_record(session.arguments.file, [&](const StepRecord& record) {
    const auto step = replay->step(record);
    if (step) {
      row.totals.add(*step);
      printer.print(*step);
      return;
    }
    if (row.totals.unknown_steps++ == 0) {
      row.totals.unknown = "step " + std::to_string(record.step) + ": " + step.error().message;
    }
  });
  if (!done) return done.error();
  return row;
}

Result<ReplayRow> recorded_row(Session& session, const RecordedModel& model) {
  ReplayRow row{"(recorded)", {}};
  const auto done = each_record(session.arguments.file, [&](const StepRecord& record) {
    row.totals.add(recorded_step(record, model));
  });
  if (!done) return done.error();
  return row;
}

void print_notes(Session& session, const Plan& plan, const std::vector<ReplayRow>& rows) {
  const Style& style = session.error_style;
  if (plan.truncated) {
    session.err << "pudica: the last line of " << sanitised(session.arguments.file, style)
                << " was cut off; it is left out\n";
  }
  if (plan.began_learned) {
    session.err << "pudica: the run began from a learned state, which the record does not hold: "
                   "policies that learn are replayed from nothing, and "
                << plan.profiles << " of " << plan.steps << " steps tell what the layers need\n";
  }
  for (const ReplayRow& row : rows) {
    const ReplayTotals& totals = row.totals;
    if (totals.unknown_steps > 0) {
      session.err << "pudica: " << sanitised(row.name, style) << ": " << totals.unknown_steps
                  << " steps are left out, since what they need was never measured (first: "
                  << sanitised(totals.unknown, style) << ")\n";
    }
    if (totals.timed_steps < totals.steps) {
      session.err << "pudica: " << sanitised(row.name, style) << ": the times are those of "
                  << totals.timed_steps << " of " << totals.steps
                  << " steps: of the others it is not known what recomputing took\n";
    }
  }
}

// `{"schema",...,"policies":[{"policy","steps":[...],"totals"}...]}`, piece by piece.
Result<std::vector<ReplayRow>> run_json(Session& session, const Plan& plan,
                                        const RecordedModel& model, const ReplayRow& recorded) {
  std::vector<ReplayRow> rows{recorded};
  Json head{{"schema", "pudica.replay/1"},
            {"file", valid_utf8(session.arguments.file)},
            {"run", valid_utf8(plan.run)},
            {"budget_bytes", plan.budget_bytes ? Json(plan.budget_bytes->count()) : Json()},
            {"truncated", plan.truncated},
            {"began_learned", plan.began_learned},
            {"profiles", plan.profiles},
            {"recorded", to_json(recorded.totals)}};
  std::string opening = dump(head);
  opening.pop_back();
  session.out << opening << ",\"policies\":[";
  for (const PolicySpec& spec : plan.policies) {
    session.out << (rows.size() > 1 ? ",\n" : "\n") << "{\"policy\":" << dump(Json(spec.text));
    if (session.arguments.steps) session.out << ",\"steps\":[";
    auto row = replay_policy(session, spec, plan, model);
    if (!row) return row.error();
    if (session.arguments.steps) session.out << "\n]";
    session.out << ",\"totals\":" << dump(to_json(row->totals)) << '}';
    rows.push_back(std::move(*row));
  }
  session.out << "]}\n";
  return rows;
}

Result<std::vector<ReplayRow>> run_text(Session& session, const Plan& plan,
                                        const RecordedModel& model, const ReplayRow& recorded) {
  std::vector<ReplayRow> rows{recorded};
  if (session.arguments.steps) StepPrinter::header(session);
  for (const PolicySpec& spec : plan.policies) {
    auto row = replay_policy(session, spec, plan, model);
    if (!row) return row.error();
    rows.push_back(std::move(*row));
  }
  if (session.arguments.steps) {
    if (session.style.terminal) session.out << '\n';
    if (!session.style.terminal) return rows;
  }
  print_replay_rows(session.out, rows, session.style);
  return rows;
}

Result<void> check(const RecordedModel& model, const std::string& path) {
  if (model.steps() == 0) return invalid_argument(path + " holds no step record");
  if (model.profiles() > 0) return {};
  return invalid_argument(path +
                          " holds no profile of a learning step, expected those of a run of the "
                          "policy pudica from its first step on");
}

}  // namespace

int replay_command(Session& session) {
  const Arguments& arguments = session.arguments;
  Plan plan;
  auto policies = parse_policy_list(arguments.policy);
  if (!policies) return fail(session, policies.error().with_context("--policy"));
  plan.policies = std::move(*policies);
  auto options = controller_options(arguments);
  if (!options) return fail(session, options.error());
  plan.controller = std::move(*options);
  std::error_code ignored;
  const auto kind = std::filesystem::status(arguments.file, ignored).type();
  using std::filesystem::file_type;
  if (kind != file_type::not_found && kind != file_type::regular && kind != file_type::directory) {
    return fail(session, invalid_argument(arguments.file + " is no regular file: it is read once "
                                                           "for each policy"));
  }
  RecordedModel model(plan.controller);
  const auto read = each_record(arguments.file, [&](const StepRecord& record) {
    plan.run = record.run;
    if (plan.steps++ == 0) plan.began_learned = record.predicted_bytes.has_value();
    model.observe(record);
  });
  if (!read) return fail(session, read.error());
  plan.truncated = *read;
  plan.profiles = model.profiles();
  if (const auto usable = check(model, arguments.file); !usable) {
    return fail(session, usable.error());
  }
  const auto budget = budget_of(arguments.budget, model);
  if (!budget) return fail(session, budget.error());
  plan.budget_bytes = *budget;
  // What cannot start must not leave half an answer behind.
  for (const PolicySpec& spec : plan.policies) {
    const auto replay = Replay::start(spec, plan.controller, model, plan.budget_bytes);
    if (!replay) return fail(session, replay.error());
  }
  const auto recorded = recorded_row(session, model);
  if (!recorded) return fail(session, recorded.error());
  const auto rows = arguments.json ? run_json(session, plan, model, *recorded)
                                   : run_text(session, plan, model, *recorded);
  if (!rows) return fail(session, rows.error());
  print_notes(session, plan, *rows);
  return kExitDone;
}

}  // namespace pudica::cli
