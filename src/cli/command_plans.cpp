// `pudica plans`, `pudica explain`, `pudica estimate`.
#include <algorithm>
#include <ostream>
#include <utility>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/row_fields.h"
#include "cli/table.h"
#include "pudica/bytes.h"
#include "pudica/shape_key.h"

namespace pudica::cli {
namespace {

constexpr std::size_t kFrontierShown = 20;

// "full*2 keep*6": modes in execution order, neighbours of one mode together.
std::string modes_text(const Json& modes, const Style& style) {
  std::string out;
  for (std::size_t i = 0, next = 0; i < modes.size(); i = next) {
    for (next = i + 1; next < modes.size() && modes[next] == modes[i];) ++next;
    const std::string mode = modes[i].is_string() ? modes[i].get<std::string>() : dump(modes[i]);
    out += (out.empty() ? "" : " ") + sanitised(mode, style);
    if (next - i > 1) out += "*" + std::to_string(next - i);
  }
  return out.empty() ? kNothing : out;
}

// A named key without its names: "batch=12,source=384" -> "12x384".
std::string short_key(const std::string& key, const Style& style) {
  const auto parsed = ShapeKey::parse(key);
  return parsed ? parsed->to_string() : sanitised(key, style);
}

std::string region_text(const Json& plan, const Style& style) {
  std::string out;
  for (const Json& corner : list(plan, "fits_up_to")) {
    if (!corner.is_string()) continue;
    out += (out.empty() ? "" : " ") + short_key(corner.get<std::string>(), style);
  }
  return out.empty() ? kNothing : out;
}

Colour mode_colour(const std::string& mode) {
  if (mode == "keep") return Colour::kGreen;
  if (mode == "full") return Colour::kRed;
  return mode == "offload" ? Colour::kBlue : Colour::kYellow;
}

std::string yes(const Json& answer, const char* field, const Style& style) {
  const bool fits = is_true(answer, field);
  return painted(fits ? "yes" : "no", fits ? Colour::kGreen : Colour::kRed, style);
}

std::string budget_text(const Json& answer) {
  const auto budget = integer(answer, "budget_bytes");
  return budget && *budget == 0 ? "no limit" : bytes_text(budget);
}

// What was asked of a shape: the daemon's answer. Checks shape and budget before asking.
Result<Json> ask(Session& session, const std::string& question) {
  const Arguments& arguments = session.arguments;
  const auto shape = ShapeKey::parse(arguments.shape);
  if (!shape) return shape.error().with_context("SHAPE");
  std::string target = question + "?shape=" + url_escape(arguments.shape);
  if (!arguments.budget.empty()) {
    const auto budget = parse_bytes(arguments.budget);
    if (!budget) return budget.error().with_context("--budget");
    target += "&budget=" + url_escape(arguments.budget);
  }
  const auto run = session.daemon.run_id(arguments.run);
  if (!run) return run.error();
  return session.daemon.get(run_target(*run, target));
}

void print_plans(Session& session, const Json& plans) {
  const Style& style = session.style;
  Table table({{"SHAPE"},
               {"PREDICTED", true},
               {"MEASURED", true},
               {"SLACK", true, false, 4},
               {"HITS", true, false, 3},
               {"LAST USED", true, false, 5},
               {"FITS UP TO", false, true, 2},
               {"MODES", false, true, 0}});
  for (const Json& plan : plans) {
    const Json* const modes = find(plan, "plan.modes");
    const auto last = integer(plan, "last_used_step");
    table.add({{short_key(text(plan, "key"), style)},
               {bytes_text(integer(plan, "predicted_peak_bytes"))},
               {bytes_text(integer(plan, "measured_peak_bytes"))},
               {bytes_text(integer(plan, "slack_bytes"))},
               {count_text(integer(plan, "hits"))},
               {last ? "step " + std::to_string(*last) : kNothing},
               {region_text(plan, style)},
               {modes != nullptr && modes->is_array() ? modes_text(*modes, style) : kNothing}});
  }
  table.print(session.out, style);
}

std::vector<const Json*> pointers(const Json& values) {
  std::vector<const Json*> out;
  for (const Json& value : values) out.push_back(&value);
  return out;
}

// The selective modes of each class: what they free, what that costs, what runs again.
void print_menu(Session& session, const Json& menu) {
  const Style& style = session.style;
  if (menu.empty()) return;
  session.out << '\n' << painted("Selective modes", Colour::kBold, style) << '\n';
  Table table({{"CLASS", false, true, 2},
               {"MODE"},
               {"FREES", true},
               {"EXTRA TIME", true},
               {"WHAT", false, true, 0, true}});
  for (const Json& item : menu) {
    const std::string mode = text(item, "mode");
    table.add({{sanitised(text(item, "class"), style)},
               {sanitised(mode, style), mode_colour(mode)},
               {bytes_text(integer(item, "freed_bytes"))},
               {duration_text(number(item, "extra_seconds"))},
               {sanitised(text(item, "what"), style)}});
  }
  table.print(session.out, style);
}

void print_explanation(Session& session, const Json& answer) {
  const Style& style = session.style;
  print_facts(
      session.out,
      {{"Shape", sanitised(text(answer, "key"), style)},
       {"Budget", budget_text(answer) + ", margin " + bytes_text(integer(answer, "margin_bytes"))},
       {"Fits", yes(answer, "fits", style)},
       {"Predicted", bytes_text(integer(answer, "predicted_peak_bytes"))},
       {"Keeping all", bytes_text(integer(answer, "keep_all_peak_bytes"))},
       {"Least peak", bytes_text(integer(answer, "floor_peak_bytes"))},
       {"Extra time", duration_text(number(answer, "extra_seconds"))},
       {"Why", sanitised(text(answer, "reason"), style)}},
      style);
  session.out << '\n';
  Table table({{"LAYER", true},
               {"CLASS", false, true, 2},
               {"MODE"},
               {"HOLDS", true},
               {"KEPT IT HOLDS", true, false, 1},
               {"EXTRA TIME", true},
               {"WHY", false, true, 0, true}});
  for (const Json& layer : list(answer, "layers")) {
    const std::string mode = text(layer, "mode");
    table.add({{count_text(integer(layer, "layer"))},
               {sanitised(text(layer, "class"), style)},
               {sanitised(mode, style), mode_colour(mode)},
               {bytes_text(integer(layer, "held_bytes"))},
               {bytes_text(integer(layer, "keep_held_bytes"))},
               {duration_text(number(layer, "extra_seconds"))},
               {sanitised(text(layer, "why"), style)}});
  }
  table.print(session.out, style);
  print_menu(session, list(answer, "menu"));
}

std::string mode_counts(const Json& answer, const Style& style) {
  std::string out;
  const Json* const modes = find(answer, "modes");
  if (modes == nullptr || !modes->is_object()) return kNothing;
  for (const auto& [mode, count] : modes->items()) {
    out += (out.empty() ? "" : ", ") + sanitised(dump(count), style) + " " + sanitised(mode, style);
  }
  return out.empty() ? kNothing : out;
}

// Of a shape for which the run holds a plan: as it was measured in it.
std::string predicted_text(const Json& answer) {
  std::string out = bytes_text(integer(answer, "predicted_peak_bytes"));
  const auto plan = integer(answer, "plan_id");
  if (!plan) return out;
  const bool measured = integer(answer, "measured_peak_bytes").has_value();
  return out + (measured ? ", as measured" : "") + " in the run's plan " + std::to_string(*plan);
}

// The doubt in numbers: how high the step may peak at most, and why.
std::string sure_text(const Json& answer) {
  constexpr std::int64_t kWorthAWord = 500;  // a difference below this share of the peak is none
  const auto peak = integer(answer, "predicted_peak_bytes");
  const auto upper = integer(answer, "upper_peak_bytes");
  const bool settled = is_true(answer, "settled");
  if (!peak || !upper) return kNothing;
  if (settled && *upper - *peak <= *peak / kWorthAWord) {
    return "yes: what was measured determines this shape";
  }
  std::string why = settled ? "shapes like this one were not measured"
                            : "the run still learns, and may take another plan";
  if (const auto step = integer(answer, "learned_step"); step && !settled) {
    why += " than what it had learned by step " + std::to_string(*step) + " tells";
  }
  return "no: up to " + bytes_text(upper) + ", as " + why;
}

void print_estimate(Session& session, const Json& answer) {
  const Style& style = session.style;
  print_facts(session.out,
              {{"Shape", sanitised(text(answer, "key"), style)},
               {"Budget", budget_text(answer)},
               {"Fits", yes(answer, "fits", style)},
               {"Predicted", predicted_text(answer)},
               {"Keeping all", bytes_text(integer(answer, "keep_all_peak_bytes"))},
               {"Least peak", bytes_text(integer(answer, "floor_peak_bytes"))},
               {"Extra time", duration_text(number(answer, "extra_seconds"))},
               {"Modes", mode_counts(answer, style)},
               {"Sure", sure_text(answer)}},
              style);
  const Json& frontier = list(answer, "frontier");
  if (frontier.empty()) return;
  session.out << '\n' << painted("What less memory costs", Colour::kBold, style) << '\n';
  Table table({{"PEAK", true}, {"EXTRA TIME", true}});
  const std::size_t stride = (frontier.size() + kFrontierShown - 1) / kFrontierShown;
  for (std::size_t i = 0; i < frontier.size(); ++i) {
    if (i % stride != 0 && i + 1 != frontier.size()) continue;
    table.add({{bytes_text(integer(frontier[i], "peak_bytes"))},
               {duration_text(number(frontier[i], "extra_seconds"))}});
  }
  table.print(session.out, style);
  if (stride > 1) {
    session.out << "of " << frontier.size() << " points; --json shows all\n";
  }
}

}  // namespace

int plans_command(Session& session) {
  const auto run = session.daemon.run_id(session.arguments.run);
  if (!run) return fail(session, run.error());
  const auto answer = session.daemon.get(run_target(*run, "/plans"));
  if (!answer) return fail(session, answer.error());
  if (session.arguments.json) return print_json(session, *answer);
  const Json& plans = list(*answer, "plans");
  if (!session.arguments.format.empty()) {
    return print_formatted(session, known_plan_fields(), pointers(plans));
  }
  if (!session.style.terminal) {
    print_fields(session.out,
                 {"key", "predicted_peak_bytes", "measured_peak_bytes", "slack_bytes", "hits",
                  "created_step", "last_used_step", "fits_up_to", "plan.modes"},
                 pointers(plans));
    return kExitDone;
  }
  if (plans.empty()) {
    session.out << "This run holds no plan yet.\n";
    return kExitDone;
  }
  print_plans(session, plans);
  return kExitDone;
}

int explain_command(Session& session) {
  const auto answer = ask(session, "/explain");
  if (!answer) return fail(session, answer.error());
  if (session.arguments.json) return print_json(session, *answer);
  if (session.style.terminal) {
    print_explanation(session, *answer);
  } else {
    print_fields(
        session.out,
        {"layer", "class", "mode", "held_bytes", "keep_held_bytes", "extra_seconds", "why"},
        pointers(list(*answer, "layers")));
  }
  return kExitDone;
}

int estimate_command(Session& session) {
  const auto answer = ask(session, "/estimate");
  if (!answer) return fail(session, answer.error());
  if (session.arguments.json) return print_json(session, *answer);
  if (session.style.terminal) {
    print_estimate(session, *answer);
  } else {
    print_fields(session.out,
                 {"key", "budget_bytes", "fits", "identified", "predicted_peak_bytes",
                  "keep_all_peak_bytes", "floor_peak_bytes", "extra_seconds", "upper_peak_bytes",
                  "settled", "measured_peak_bytes", "learned_step"},
                 {&*answer});
  }
  return kExitDone;
}

}  // namespace pudica::cli
