#include "cli/rehearsal_answer.h"

#include <algorithm>

#include "cli/rehearsal_cards.h"

namespace pudica::cli {
namespace {

constexpr const char* kSchema = "pudica.rehearsal/1";

Json field(const Json& object, std::string_view path) {
  const Json* const found = find(object, path);
  return found ? *found : Json();
}

Json peaks(const Json& report) {
  return {{"allocated_bytes", peak_of(report, "allocated").count()},
          {"reserved_bytes", peak_of(report, "reserved").count()}};
}

// The handle whose longest batch needs most; nullptr where nothing was learned.
const Json* main_handle(const Json& report) {
  const Json* most = nullptr;
  const auto needs = [](const Json& handle) {
    return integer(handle, "shapes.longest.keep_all_peak_bytes").value_or(-1);
  };
  for (const Json& handle : list(report, "handles")) {
    if (needs(handle) >= 0 && (most == nullptr || needs(handle) > needs(*most))) most = &handle;
  }
  return most;
}

std::int64_t sum_over(const RehearsedWay& way, const std::string& path) {
  std::int64_t sum = 0;
  for (const Json& report : way.ranks) {
    for (const Json& handle : list(report, "handles")) sum += integer(handle, path).value_or(0);
  }
  return sum;
}

bool attached(const RehearsedWay& way) {
  return std::ranges::any_of(way.ranks,
                             [](const Json& report) { return !list(report, "handles").empty(); });
}

Json death(const RehearsedWay& way) {
  if (!died_of_memory(way)) return {};
  for (const Json& report : way.ranks) {
    const Json* const seen = find(report, "out_of_memory");
    if (seen != nullptr && seen->is_object()) return *seen;
  }
  return {{"step", 0}, {"shape", ""}};  // before the first step
}

// FLOPs of all steps of all ranks.
struct Work {
  double flops = 0;
  double layer_flops = 0;  // of the layers' forwards
  double again_flops = 0;  // of layers that ran in a backward again, by the script's own wish
  std::size_t steps = 0;
  bool counted = true;       // in every step that ended
  bool layers_apart = true;  // layer_flops are known
};

Work work_of(const RehearsedWay& way) {
  Work work;
  for (const Json& report : way.ranks) {
    for (const Json& step : list(report, "steps")) {
      const auto flops = number(step, "flops");
      const auto layers = number(step, "layer_flops");
      work.counted = work.counted && flops.has_value();
      work.layers_apart = work.layers_apart && layers.has_value();
      work.flops += flops.value_or(0);
      work.layer_flops += layers.value_or(0);
      work.again_flops += number(step, "again_flops").value_or(0);
      ++work.steps;
    }
  }
  return work;
}

// What frameworks' gradient checkpointing of every layer and the plan take beside keeping all, over
// the steps of the run: shares of its FLOPs; null where nobody counted.
void add_work(const RehearsedWay& whole, const RehearsedWay& planned, const Json* handle,
              Json& answer) {
  const Work kept = work_of(whole);
  const Work under_plan = work_of(planned);
  const double plain = kept.flops - kept.again_flops;
  const bool known = kept.counted && kept.layers_apart && plain > 0;
  Json all_full = handle ? field(*handle, "shapes.longest.all_full.peak_bytes") : Json();
  answer["checkpointing"] = {
      {"peak_bytes", std::move(all_full)},
      {"extra_flops_share", known ? Json(kept.layer_flops / plain) : Json()}};
  const bool same = known && under_plan.counted && under_plan.steps == kept.steps;
  answer["plan_extra_flops_share"] = same ? Json(under_plan.flops / plain - 1) : Json();
}

// Peaks with segments of either kind, and which to use: the one that reserves clearly less.
Json segments_of(const RehearsedWay& whole, const std::optional<RehearsedWay>& other) {
  const Json& own = whole.worst();
  const bool own_expand = is_true(own, "expandable_segments");
  const char* const own_kind = own_expand ? "expandable" : "fixed";
  const char* const other_kind = own_expand ? "fixed" : "expandable";
  Json out{{own_kind, peaks(own)}, {other_kind, nullptr}, {"advice", "either"}};
  if (!other || !other->done() || !other->reported()) return out;
  // A script that sets its own is not told what to do.
  if (is_true(other->worst(), "expandable_segments") == own_expand) return out;
  out[other_kind] = peaks(other->worst());
  const auto reserved = static_cast<double>(peak_of(own, "reserved").count());
  const auto otherwise = static_cast<double>(peak_of(other->worst(), "reserved").count());
  if (otherwise < (1 - kLittle) * reserved) out["advice"] = other_kind;
  if (reserved < (1 - kLittle) * otherwise) out["advice"] = own_kind;
  return out;
}

Json doubt(const char* kind, std::string text) {
  return {{"kind", kind}, {"text", std::move(text)}};
}

void add_reads(const Json& report, Json& doubts) {
  for (const Json& place : list(report, "reads.places")) {
    Json one = doubt("read", "a value of the device is read here, and is not what it would be");
    for (const char* const name : {"file", "line", "count", "code"}) one[name] = place[name];
    doubts.push_back(std::move(one));
  }
  if (const auto unplaced = integer(report, "reads.unplaced"); unplaced.value_or(0) > 0) {
    Json one = doubt("read", "values of the device were copied to the host, nobody knows where");
    one["count"] = *unplaced;
    doubts.push_back(std::move(one));
  }
}

Json doubts_of(const Rehearsal& rehearsal, const RehearsedWays& ways, const Json& whole) {
  Json doubts = Json::array();
  add_reads(whole, doubts);
  if (is_true(whole, "stopped")) {
    doubts.push_back(doubt("stopped", "the script would have gone on after " +
                                          std::to_string(rehearsal.most_steps) +
                                          " optimizer steps: longer batches may come"));
  }
  if (ways.as_is.done() && find(ways.as_is.worst(), "out_of_memory.step") != nullptr) {
    doubts.push_back(doubt("caught", "the script caught an out-of-memory error and went on"));
  }
  if (ways.planned_unlimited && rehearsal.budget.starts_with("between")) {
    doubts.push_back(doubt("budget", "the planned run died before it was known what " +
                                         rehearsal.budget +
                                         " comes to: its figures are those of budget auto"));
  }
  const RehearsedWay& planned = ways.planned_unlimited ? *ways.planned_unlimited : ways.planned;
  if (!attached(planned)) {
    doubts.push_back(doubt("unattached", "pudica attached to nothing: the log says why"));
  }
  if (sum_over(planned, "stats.failures") > 0) {
    doubts.push_back(doubt("failures", "pudica failed in some steps: the log says how"));
  }
  if (const auto count = sum_over(planned, "stats.unplanned_steps"); count > 0) {
    doubts.push_back(doubt("unplanned", std::to_string(count) + " steps could not be planned"));
  }
  return doubts;
}

void add_shapes(const Json* handle, Json& answer) {
  for (const char* const name : {"longest", "median", "shortest"}) {
    Json shape = handle ? field(*handle, std::string("shapes.") + name) : Json();
    for (const char* const part : {"frontier", "all_full"}) {
      if (shape.is_object()) shape.erase(part);
    }
    answer[name] = std::move(shape);
  }
  answer["frontier"] = Json::array();
  if (handle == nullptr) return;
  answer["frontier"] = list(*handle, "shapes.longest.frontier");
}

// What the device is busy for in a step of this shape, on the mean; null: not known.
Json busy_seconds(const Json& whole, const Json& shape) {
  double sum = 0;
  int steps = 0;
  for (const Json& step : list(whole, "steps")) {
    const auto seconds = number(step, "busy_seconds");
    if (!seconds || step["shape"] != shape) continue;
    sum += *seconds;
    ++steps;
  }
  return steps > 0 ? Json(sum / steps) : Json();
}

}  // namespace

bool died_of_memory(const RehearsedWay& way) {
  if (way.out_of_memory()) return true;
  return !way.done() && std::ranges::any_of(way.ranks, [](const Json& report) {
    return find(report, "out_of_memory.step") != nullptr;
  });
}

double spared_share(const Json& report) {
  const auto reserved = static_cast<double>(peak_of(report, "reserved").count());
  const auto allocated = static_cast<double>(peak_of(report, "allocated").count());
  return reserved > 0 ? 1 - allocated / reserved : 0;
}

Json rehearsal_answer(const Rehearsal& rehearsal, const RehearsedWays& ways) {
  const RehearsedWay& as_is = ways.as_is_unlimited ? *ways.as_is_unlimited : ways.as_is;
  const Json& whole = as_is.worst();
  const RehearsedWay& learned = ways.planned_unlimited ? *ways.planned_unlimited : ways.planned;
  const Json* const handle = learned.reported() ? main_handle(learned.worst()) : nullptr;
  const bool one_model = handle && list(learned.worst(), "handles").size() == 1;
  const bool fits_as_is = !died_of_memory(ways.as_is);
  const std::int64_t overruns = sum_over(learned, "stats.overruns");
  const bool plan_held = !died_of_memory(ways.planned) && overruns == 0;
  const Bytes context{static_cast<std::int64_t>(rehearsal.card->context_bytes)};
  Json answer{
      {"schema", kSchema},
      {"command", rehearsal.program},
      {"card", rehearsal.card->name},
      {"memory_bytes", rehearsal.memory.count()},
      {"context_bytes", context.count()},
      {"budget_bytes",
       handle ? field(*handle, "stats.budget_bytes")
              : Json(budget_bytes(rehearsal.budget, rehearsal.memory, context).count())},
      {"torch", text(whole, "torch")},
      {"ranks", ways.as_is.ranks.size()},
      {"steps", list(whole, "steps").size()},
      {"fits_as_is", fits_as_is},
      {"fits_with_plan", attached(learned) ? plan_held : fits_as_is},
      {"dies_as_is", death(ways.as_is)},
      {"dies_with_plan", attached(learned) ? death(ways.planned) : Json()},
      {"overruns", overruns},
      {"keep_all_peak", peaks(whole)},
      {"planned_peak", attached(learned) ? peaks(learned.worst()) : Json()},
      {"floor_peak",
       {{"allocated_bytes", one_model ? field(*handle, "shapes.longest.floor_peak_bytes") : Json()},
        {"reserved_bytes", nullptr}}}};  // only bytes in use are predicted at the floor
  add_shapes(handle, answer);
  answer["step_seconds"] =
      handle ? busy_seconds(whole, field(*handle, "shapes.longest.shape")) : Json();
  add_work(as_is, learned, one_model ? handle : nullptr, answer);
  answer["segments"] = segments_of(as_is, ways.other_segments);
  answer["largest"] = largest_sizes(one_model ? handle : nullptr);
  answer["cards"] = cards_of(whole, one_model ? handle : nullptr);
  answer["learned"] = nullptr;
  answer["doubts"] = doubts_of(rehearsal, ways, whole);
  return answer;
}

}  // namespace pudica::cli
