// `pudica group`: budget groups, their runs and totals.
#include <ostream>
#include <utility>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/row_fields.h"
#include "cli/view_runs.h"

namespace pudica::cli {
namespace {

// As the arguments ask for it. Returns an exit code.
int print_group(Session& session, const Json& group) {
  const Style& style = session.style;
  if (session.arguments.json) return print_json(session, group);
  if (!session.arguments.format.empty()) {
    return print_formatted(session, known_group_fields(), {&group});
  }
  if (!style.terminal) {
    std::vector<const Json*> members;
    for (const Json& run : list(group, "runs")) members.push_back(&run);
    print_fields(session.out, {"id", "share_bytes", "need_bytes", "budget_bytes", "pending_bytes"},
                 members);
    return kExitDone;
  }
  print_group_table(session.out, Json::array({group}), style);
  if (list(group, "runs").empty()) return kExitDone;
  session.out << '\n';
  Table table({{"RUN", false, true},
               {"SHARE", true},
               {"NEED", true},
               {"BUDGET", true},
               {"PENDING", true, false, 1}});
  for (const Json& run : list(group, "runs")) {
    table.add({{sanitised(text(run, "id"), style)},
               {bytes_text(integer(run, "share_bytes"))},
               {bytes_text(integer(run, "need_bytes"))},
               {bytes_text(integer(run, "budget_bytes"))},
               {bytes_text(integer(run, "pending_bytes"))}});
  }
  table.print(session.out, style);
  return kExitDone;
}

int set_total(Session& session) {
  const Arguments& arguments = session.arguments;
  if (const auto total = positive_bytes(arguments.budget); !total) {
    return fail(session, total.error());
  }
  const auto answer = session.daemon.put("/v1/groups/" + url_escape(arguments.group),
                                         {{"total", arguments.budget}});
  if (!answer) return fail(session, answer.error());
  return print_group(session, *answer);
}

}  // namespace

int group_command(Session& session) {
  const Arguments& arguments = session.arguments;
  if (!arguments.budget.empty()) return set_total(session);
  const auto answer = session.daemon.get("/v1/runs");
  if (!answer) return fail(session, answer.error());
  const Json& groups = list(*answer, "groups");
  if (!arguments.group.empty()) {
    for (const Json& group : groups) {
      if (text(group, "name") == arguments.group) return print_group(session, group);
    }
    std::vector<std::string> names;
    for (const Json& group : groups) names.push_back(text(group, "name"));
    std::string known;
    for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
    return fail(session, Error{ErrorCode::kNotFound,
                               "no group '" + arguments.group + "', expected one of: " +
                                   (known.empty() ? "(there is none)" : known)});
  }
  if (arguments.json) return print_json(session, {{"groups", groups}});
  std::vector<const Json*> rows;
  for (const Json& group : groups) rows.push_back(&group);
  if (!arguments.format.empty()) return print_formatted(session, known_group_fields(), rows);
  if (!session.style.terminal) {
    print_fields(session.out, {"name", "total_bytes", "assigned_bytes"}, rows);
  } else if (groups.empty()) {
    session.out << "There is no budget group; `pudica group NAME BYTES` makes one.\n";
  } else {
    print_group_table(session.out, groups, session.style);
  }
  return kExitDone;
}

}  // namespace pudica::cli
