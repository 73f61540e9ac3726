#include "cli/budget_dry_run.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/format.h"
#include "cli/table.h"
#include "pudica/shape_key.h"

namespace pudica::cli {
namespace {

constexpr std::size_t kMostAsked = 16;  // shapes of which none covers another one

// Adds a shape, unless one that is there covers it; what it covers goes.
void add_longest(std::vector<ShapeKey>& longest, const std::string& text) {
  const auto key = ShapeKey::parse(text);
  if (!key) return;
  const auto covers = [&key](const ShapeKey& one) {
    return one.names() == key->names() && one.covers(*key);
  };
  if (std::ranges::any_of(longest, covers)) return;
  std::erase_if(longest, [&key](const ShapeKey& one) {
    return one.names() == key->names() && key->covers(one);
  });
  longest.push_back(*key);
}

// What the daemon has seen, and what the run planned for before that.
std::vector<ShapeKey> longest_shapes(const Json& run, const Json& plans) {
  std::vector<ShapeKey> out;
  for (const Json& key : list(run, "longest_keys")) {
    if (key.is_string()) add_longest(out, key.get<std::string>());
  }
  for (const Json& plan : list(plans, "plans")) add_longest(out, text(plan, "key"));
  add_longest(out, text(run, "last.key"));
  if (out.size() > kMostAsked) out.resize(kMostAsked);
  return out;
}

// Keys alone do not tell which of two needs more; what their steps need at least does.
bool needs_more(const Json& one, const Json& other) {
  const auto need = [](const Json& estimate) {
    return std::pair(integer(estimate, "floor_peak_bytes").value_or(0),
                     integer(estimate, "keep_all_peak_bytes").value_or(0));
  };
  return need(one) > need(other);
}

// The last step of the shape that the daemon holds; null: none.
Json last_step_of(const Json& run, const std::string& key) {
  Json found;
  for (const Json& step : list(run, "steps")) {
    if (text(step, "key") == key && !is_true(step, "learning")) found = step;
  }
  return found;
}

std::string outcome_text(const Json& run, const Json& estimate, const Style& style) {
  const std::string key = text(estimate, "key");
  const Json step = last_step_of(run, key);
  std::string out = sanitised(key, style) + ": ";
  if (!is_true(estimate, "fits")) {
    return out + "needs " + bytes_text(integer(estimate, "floor_peak_bytes")) +
           " with every layer recomputed";
  }
  out += "peaks at " + bytes_text(integer(estimate, "predicted_peak_bytes")) + ", recomputing " +
         recompute_text(number(estimate, "extra_seconds"), number(step, "seconds"));
  const auto now = number(step, "recompute_seconds");
  return now ? out + ", now " + recompute_text(now, number(step, "seconds")) : out;
}

struct Answer {
  Json longest;  // the estimate of the shape that needs most
  Json last;     // that of the last step's; null: the same
};

Result<Answer> ask(Session& session, const Json& run, Bytes budget) {
  const std::string id = text(run, "id");
  const auto estimate = [&](const std::string& key) {
    return session.daemon.get(run_target(
        id, "/estimate?shape=" + url_escape(key) + "&budget=" + std::to_string(budget.count())));
  };
  const auto plans = session.daemon.get(run_target(id, "/plans"));
  if (!plans) return plans.error();
  const std::string last = text(run, "last.key");
  Answer out;
  for (const ShapeKey& shape : longest_shapes(run, *plans)) {
    const auto found = estimate(shape.to_named_string());
    if (!found) return found.error();
    if (shape.to_named_string() == last) out.last = *found;
    if (out.longest.is_null() || needs_more(*found, out.longest)) out.longest = *found;
  }
  if (last == text(out.longest, "key")) out.last = Json();
  if (last == text(out.longest, "key") || !out.last.is_null()) return out;
  auto found = estimate(last);
  if (!found) return found.error();
  out.last = std::move(*found);
  return out;
}

int print_rows(Session& session, const Answer& answer, Bytes taken) {
  std::vector<Json> rows;
  const auto add = [&](Json estimate, const char* shape) {
    estimate["would_take_bytes"] = taken.count();
    estimate["shape"] = shape;
    rows.push_back(std::move(estimate));
  };
  add(answer.longest, "longest");
  if (!answer.last.is_null()) add(answer.last, "last");
  std::vector<const Json*> shown;
  for (const Json& row : rows) shown.push_back(&row);
  print_fields(
      session.out,
      {"run", "would_take_bytes", "key", "fits", "predicted_peak_bytes", "extra_seconds", "shape"},
      shown);
  return kExitDone;
}

}  // namespace

int budget_dry_run(Session& session, const Json& run, Bytes asked) {
  if (text(run, "last.key").empty()) {
    return fail(session, Error{ErrorCode::kOverBudget,
                               "no step of the run has ended yet: nothing is known of it"});
  }
  const Bytes taken = std::max(asked, Bytes(integer(run, "floor_bytes").value_or(0)));
  const auto answer = ask(session, run, taken);
  if (!answer) return fail(session, answer.error());
  if (session.arguments.json) {
    return print_json(session, {{"run", text(run, "id")},
                                {"budget_bytes", asked.count()},
                                {"would_take_bytes", taken.count()},
                                {"now_bytes", integer(run, "budget_bytes").value_or(0)},
                                {"estimate", answer->longest},
                                {"last_estimate", answer->last}});
  }
  if (!session.style.terminal) return print_rows(session, *answer, taken);
  Facts facts{
      {"Run", sanitised(text(run, "id"), session.style) + ", nothing was changed"},
      {"Budget", bytes_text(taken.count()) + ", now " + bytes_text(integer(run, "budget_bytes"))},
      {"Fits", is_true(answer->longest, "fits") ? "yes, the longest shape it has met too"
                                                : "no: the longest shape it has met does not"},
      {"Longest", outcome_text(run, answer->longest, session.style)}};
  if (!answer->last.is_null()) {
    facts.emplace_back("Last", outcome_text(run, answer->last, session.style));
  }
  print_facts(session.out, facts, session.style);
  return kExitDone;
}

}  // namespace pudica::cli
