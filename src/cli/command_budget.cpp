// `pudica budget`: sets a run's budget and tells what came of it.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <limits>
#include <ostream>
#include <thread>
#include <utility>

#include "cli/budget_dry_run.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/table.h"
#include "inspect/recomputation.h"
#include "pudica/bytes.h"

namespace pudica::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookEvery{200};

// The change of budget that the order `seq` led to, with the first step under it; null while there
// is none. An order that its group holds back (0) has no number yet: it is the next one.
Json change_after(const Json& run, std::int64_t seq, std::int64_t last_seq) {
  for (const Json& change : list(run, "budgets")) {
    const std::int64_t number = integer(change, "seq").value_or(0);
    const bool answers = seq > 0 ? number >= seq : number > last_seq;
    if (answers && integer(change, "measured_bytes")) return change;
  }
  return {};
}

std::int64_t last_seq(const Json& run) {
  std::int64_t last = 0;
  for (const Json& change : list(run, "budgets")) {
    last = std::max(last, integer(change, "seq").value_or(0));
  }
  return last;
}

bool has_ended(const Json& run) {
  const std::string state = text(run, "state");
  return state == "ended" || state == "lost";
}

// Waits for the first step under the budget. Null: it has not come in time. Errors: those of the
// daemon; kCorrupt where the run ended before.
Result<Json> await_step(Session& session, const Json& before, const Json& answer) {
  const auto until =
      Clock::now() +
      std::chrono::milliseconds(static_cast<std::int64_t>(1000 * session.arguments.wait_seconds));
  const std::string target = run_target(text(answer, "run"));
  const std::int64_t seq = integer(answer, "seq").value_or(0);
  const std::int64_t known = last_seq(before);
  for (;;) {
    const auto run = session.daemon.get(target);
    if (!run) return run.error();
    Json change = change_after(*run, seq, known);
    if (!change.is_null()) return change;
    if (has_ended(*run)) {
      return Error{ErrorCode::kCorrupt,
                   "the run ended before a step was over under the new budget"};
    }
    if (Clock::now() >= until) return Json();
    std::this_thread::sleep_for(kLookEvery);
  }
}

void print_taken(Session& session, const Json& before, const Json& answer, const Json& change) {
  const auto asked = integer(answer, "budget_bytes");
  const auto taken = integer(change, "budget_bytes");
  std::string budget =
      bytes_text(taken) + " from step " + count_text(integer(change, "step")) + " on";
  if (taken != asked) budget += ", where " + bytes_text(asked) + " was asked for";
  const auto peak = integer(change, "measured_bytes");
  std::string measured = bytes_text(peak);
  if (peak && taken) {
    const auto used = budget_used(Bytes(*peak), Bytes(*taken));
    if (used) measured += ", " + percent_text(used) + " of it";
  }
  print_facts(session.out,
              {{"Run", sanitised(text(answer, "run"), session.style)},
               {"Budget", budget},
               {"Peak", measured + " in the first step under it"},
               {"Recomputing",
                recompute_text(number(change, "recompute_seconds"), number(change, "seconds")) +
                    ", before " +
                    recompute_text(number(before, "last.recompute_seconds"),
                                   number(before, "last.seconds"))}},
              session.style);
}

// The daemon's answer with what became of it, for programs.
Json outcome(const Json& answer, const Json& change) {
  Json out = answer;
  out["taken"] = change;
  for (const char* const field : {"step", "measured_bytes", "seconds", "recompute_seconds"}) {
    out[field] = change.is_object() ? change.value(field, Json()) : Json();
  }
  out["taken_bytes"] = change.is_object() ? change.value("budget_bytes", Json()) : Json();
  return out;
}

int print_outcome(Session& session, const Json& before, const Json& answer, const Json& change) {
  if (session.arguments.json) {
    Json out = answer;
    out["taken"] = change;
    return print_json(session, out);
  }
  if (!session.style.terminal) {
    const Json row = outcome(answer, change);
    print_fields(session.out,
                 {"run", "budget_bytes", "seq", "effective", "taken_bytes", "step",
                  "measured_bytes", "seconds", "recompute_seconds"},
                 {&row});
    return kExitDone;
  }
  if (!change.is_null()) {
    print_taken(session, before, answer, change);
    return kExitDone;
  }
  std::string when = sanitised(text(answer, "effective"), session.style);
  if (when == "next step") when = "from its next step on";
  session.out << sanitised(text(answer, "run"), session.style) << ": "
              << bytes_text(integer(answer, "budget_bytes")) << ' ' << when;
  if (session.arguments.wait_seconds > 0) {
    session.out << "; no step was over under it within "
                << duration_text(session.arguments.wait_seconds) << ": `pudica status "
                << sanitised(text(answer, "run"), session.style) << "` tells when";
  }
  session.out << '\n';
  return kExitDone;
}

void warn_below_floor(Session& session, const Json& run, Bytes asked) {
  const auto floor = integer(run, "floor_bytes");
  if (!floor || asked.count() >= *floor) return;
  session.err << painted("pudica:", Colour::kYellow, session.error_style) << ' '
              << format_bytes(asked) << " is below the floor of "
              << sanitised(text(run, "name"), session.error_style) << ": it needs "
              << bytes_text(floor) << " with every layer recomputed, and takes that\n";
}

}  // namespace

Result<Bytes> positive_bytes(const std::string& given) {
  const auto bytes = parse_bytes(given);
  if (!bytes) return bytes.error().with_context("BYTES");
  if (bytes->count() < 1) {
    return invalid_argument("BYTES: '" + given + "' seen, expected 1 or more");
  }
  constexpr std::int64_t kLeastWithoutUnit = 1 << 20;
  const bool has_unit =
      std::ranges::any_of(given, [](unsigned char c) { return std::isalpha(c) != 0; });
  if (!has_unit && bytes->count() < kLeastWithoutUnit) {
    return invalid_argument("BYTES: '" + given +
                            "' without a unit is bytes, fewer than any run needs; " +
                            "expected a unit, such as " + given + "GiB or " + given + "B");
  }
  return *bytes;
}

namespace {

// Bytes, or with a sign so much more or less than the run has now.
struct Wish {
  Bytes bytes{0};
  char sign = ' ';
  [[nodiscard]] bool is_change() const { return sign != ' '; }
};

// Errors: kInvalidArgument. A change has a unit: "-5" is nothing that anybody means.
Result<Wish> read_wish(const std::string& given) {
  Wish wish;
  if (given.starts_with('+') || given.starts_with('-')) {
    wish.sign = given.front();
    if (std::ranges::none_of(given, [](unsigned char c) { return std::isalpha(c) != 0; })) {
      return invalid_argument("BYTES: '" + given +
                              "', expected a change with a unit, such as -2GiB");
    }
  }
  const auto bytes = positive_bytes(wish.is_change() ? given.substr(1) : given);
  if (!bytes) return bytes.error();
  wish.bytes = *bytes;
  return wish;
}

// Errors: kInvalidArgument where the change cannot be made.
Result<Bytes> budget_of(const Wish& wish, const Json& run) {
  if (!wish.is_change()) return wish.bytes;
  const std::int64_t now = integer(run, "budget_bytes").value_or(0);
  const std::string change = "BYTES: " + std::string(1, wish.sign) + format_bytes(wish.bytes);
  if (now <= 0) {
    return invalid_argument(change + ", but the run has no limit; expected bytes without a sign");
  }
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const bool fits = wish.sign == '-' ? wish.bytes.count() < now : wish.bytes.count() <= most - now;
  if (!fits) {
    return invalid_argument(change + " of " + format_bytes(Bytes(now)) + ", expected a budget of " +
                            "1 to " + std::to_string(most) + " bytes");
  }
  return wish.sign == '-' ? Bytes(now) - wish.bytes : Bytes(now) + wish.bytes;
}

}  // namespace

int budget_command(Session& session) {
  const Arguments& arguments = session.arguments;
  const auto wish = read_wish(arguments.budget);
  if (!wish) return fail(session, wish.error());
  const auto before = session.daemon.get(run_target(arguments.run));
  if (!before) return fail(session, before.error());
  if (has_ended(*before)) {
    return fail(session, Error{ErrorCode::kOverBudget,
                               "the run '" + text(*before, "id") + "' has ended (" +
                                   text(*before, "status") + "): it takes no budget any more"});
  }
  const auto asked = budget_of(*wish, *before);
  if (!asked) return fail(session, asked.error());
  warn_below_floor(session, *before, *asked);
  if (arguments.dry_run) return budget_dry_run(session, *before, *asked);
  // By its id: the name may become another run's meanwhile.
  const Json budget = wish->is_change() ? Json(asked->count()) : Json(arguments.budget);
  const auto answer =
      session.daemon.put(run_target(text(*before, "id"), "/budget"), {{"budget", budget}});
  if (!answer) return fail(session, answer.error());
  if (arguments.wait_seconds <= 0) return print_outcome(session, *before, *answer, Json());
  const auto change = await_step(session, *before, *answer);
  if (!change) return fail(session, change.error());
  return print_outcome(session, *before, *answer, *change);
}

}  // namespace pudica::cli
