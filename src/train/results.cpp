#include "train/results.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include <fmt/format.h>

#include "inspect/recomputation.h"
#include "train/statistics.h"

namespace pudica::train {
namespace {

using nlohmann::json;

constexpr std::size_t kWarmupSteps = 10;  // left out of the ratios, and counted apart
constexpr std::size_t kLossSteps = 10;

json or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? json(*value) : json();
}

template <typename Member>
double sum_of(std::span<const StepRow> rows, Member member) {
  double sum = 0;
  for (const auto& row : rows) sum += static_cast<double>(std::invoke(member, row));
  return sum;
}

// Ratio of sums over the steps after the tenth that both have run.
template <typename Member>
std::optional<double> ratio_to(const PolicyResult& policy, const PolicyResult* reference,
                               Member member) {
  const bool whole =
      policy.status == PolicyStatus::kOk || policy.status == PolicyStatus::kInterrupted;
  if (reference == nullptr || !whole) return std::nullopt;
  const auto end = std::min(policy.rows.size(), reference->rows.size());
  if (end <= kWarmupSteps) return std::nullopt;
  const auto count = end - kWarmupSteps;
  const auto below = sum_of(std::span(reference->rows).subspan(kWarmupSteps, count), member);
  if (!(below > 0)) return std::nullopt;
  return sum_of(std::span(policy.rows).subspan(kWarmupSteps, count), member) / below;
}

std::vector<double> seconds_of(const std::vector<StepRow>& rows) {
  std::vector<double> seconds;
  seconds.reserve(rows.size());
  for (const auto& row : rows) seconds.push_back(row.seconds);
  return seconds;
}

std::optional<double> warmup_overhead(const PolicyResult& policy, const PolicyResult* reference) {
  if (reference == nullptr || policy.rows.size() < kWarmupSteps ||
      reference->rows.size() < kWarmupSteps) {
    return std::nullopt;
  }
  const auto typical = median(seconds_of(reference->rows));
  if (!typical || !(*typical > 0)) return std::nullopt;
  const auto first = [](const PolicyResult& of) {
    return sum_of(std::span(of.rows).first(kWarmupSteps), &StepRow::seconds);
  };
  return (first(policy) - first(*reference)) / *typical;
}

// Errors of the predicted peak as fractions of the measured one, with how many steps tell of them
// and why the others do not. Revoked steps do, though the peak they would have had is not known:
// it was higher than what was measured.
json prediction_of(const std::vector<StepRow>& rows) {
  std::vector<double> errors;
  std::vector<double> under;
  std::size_t revoked = 0;
  std::size_t learning = 0;
  std::size_t bound = 0;
  std::size_t unplanned = 0;
  for (const auto& row : rows) {
    if (row.predicted.count() <= 0 || row.peak.count() <= 0) {
      ++(row.bound ? bound : row.learning ? learning : unplanned);
      continue;
    }
    const auto measured = static_cast<double>(row.peak.count());
    const auto short_by = static_cast<double>((row.peak - row.predicted).count()) / measured;
    errors.push_back(std::abs(short_by));
    under.push_back(std::max(0.0, short_by));
    revoked += row.revocations > 0 ? 1 : 0;
  }
  if (unplanned == rows.size()) return {};  // a policy that predicts nothing
  return {{"mean_abs_rel", or_null(mean(errors))},
          {"p99_under", or_null(quantile(under, 0.99))},
          {"max_under", or_null(quantile(under, 1.0))},
          {"steps", errors.size()},
          {"revoked", revoked},
          {"left_out", {{"learning", learning}, {"bound", bound}, {"unplanned", unplanned}}}};
}

// The distance that the middle half of the values keeps.
json quartiles_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  return json::array({*quantile(values, 0.25), *quantile(values, 0.75)});
}

// CPU time of each step over that of `reference` at the same batch, after the warm-up.
std::vector<double> cpu_ratios(const PolicyResult& policy, const PolicyResult* reference) {
  std::vector<double> ratios;
  if (reference == nullptr) return ratios;
  const auto end = std::min(policy.rows.size(), reference->rows.size());
  for (std::size_t i = kWarmupSteps; i < end; ++i) {
    const double below = reference->rows[i].cpu_seconds;
    if (below > 0) ratios.push_back(policy.rows[i].cpu_seconds / below);
  }
  return ratios;
}

json plan_time_of(const std::vector<StepRow>& rows) {
  std::vector<double> hits;
  std::vector<double> misses;
  for (const auto& row : rows) {
    if (!row.cache_hit || row.learning) continue;
    (*row.cache_hit ? hits : misses).push_back(static_cast<double>(row.plan_ns) / 1000.0);
  }
  if (hits.empty() && misses.empty()) return {};
  return {{"hits", hits.size()},
          {"misses", misses.size()},
          {"hit_p50", or_null(median(hits))},
          {"miss_p50", or_null(median(misses))},
          {"miss_p99", or_null(quantile(misses, 0.99))}};
}

std::vector<double> losses_of(std::span<const StepRow> rows) {
  std::vector<double> losses;
  for (const auto& row : rows) losses.push_back(row.loss);
  return losses;
}

// The most that a peak took of its own step's budget, or of the run's where the step had none.
std::optional<double> most_budget_used(const std::vector<StepRow>& rows, Bytes budget) {
  std::optional<double> most;
  for (const auto& row : rows) {
    most = std::max(most, budget_used(row.peak, row.budget > Bytes(0) ? row.budget : budget));
  }
  return most;
}

// Share of time in which layers ran again, of the steps that tell it.
std::optional<double> recomputed_share_of(const std::vector<StepRow>& rows) {
  double again = 0;
  double all = 0;
  for (const auto& row : rows) {
    if (!row.recompute_seconds) continue;
    again += *row.recompute_seconds;
    all += row.handle_seconds;
  }
  return recomputed_share(again, all);
}

// The budgets in the order in which they held, each with the first step under it.
json budgets_of(const std::vector<StepRow>& rows) {
  constexpr std::size_t kMostChanges = 1000;
  json budgets = json::array();
  Bytes before{-1};
  for (const auto& row : rows) {
    if (row.budget == before || budgets.size() == kMostChanges) continue;
    before = row.budget;
    budgets.push_back({{"step", row.step}, {"budget_bytes", row.budget.count()}});
  }
  return budgets;
}

template <typename T>
Result<void> read_field(const json& object, const char* name, T& value) {
  const auto entry = object.find(name);
  const auto bad = [name](const std::string& seen) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("step row: field '{}': {} seen, expected a value", name, seen)};
  };
  if (entry == object.end()) return bad("nothing");
  try {
    value = entry->get<T>();
  } catch (const json::exception&) {
    return bad(entry->dump());
  }
  return {};
}

json data_of(const TrainOptions& options) {
  return {{"kind", options.data.kind == DataKind::kText ? "text" : "lengths"},
          {"file", options.data.path.substr(options.data.path.rfind('/') + 1)},
          {"columns", options.data.columns},
          {"max_length", options.max_length > 0 ? json(options.max_length) : json()},
          {"batch", options.batch}};
}

json model_of(const TrainOptions& options) {
  const auto& model = options.model;
  return {{"preset", model.preset},   {"layers", model.layers},
          {"hidden", model.hidden},   {"heads", model.heads},
          {"vocab", model.vocab},     {"attention", to_string(model.attention)},
          {"dropout", model.dropout}, {"dtype", to_string(model.dtype)},
          {"device", options.device}, {"threads", options.threads}};
}

}  // namespace

nlohmann::json to_json(const StepRow& row) {
  return {{"step", row.step},
          {"shape", row.shape},
          {"seconds", row.seconds},
          {"cpu_seconds", row.cpu_seconds},
          {"handle_seconds", row.handle_seconds},
          {"recompute_seconds", or_null(row.recompute_seconds)},
          {"loss", std::isfinite(row.loss) ? json(row.loss) : json()},
          {"peak_bytes", row.peak.count()},
          {"predicted_bytes", row.predicted.count()},
          {"bound", row.bound},
          {"budget_bytes", row.budget.count()},
          {"base_bytes", row.base.count()},
          {"revocations", row.revocations},
          {"overrun", row.overrun},
          {"recomputed_layers", row.recomputed_layers},
          {"layer_calls", row.layer_calls},
          {"plan_ns", row.plan_ns},
          {"cache_hit", row.cache_hit ? json(*row.cache_hit) : json()},
          {"learning", row.learning}};
}

Result<StepRow> step_row_from_json(const nlohmann::json& object) {
  StepRow row;
  std::int64_t peak = 0;
  std::int64_t predicted = 0;
  std::int64_t budget = 0;
  std::int64_t base = 0;
  for (const auto& outcome :
       {read_field(object, "step", row.step), read_field(object, "shape", row.shape),
        read_field(object, "seconds", row.seconds),
        read_field(object, "cpu_seconds", row.cpu_seconds),
        read_field(object, "handle_seconds", row.handle_seconds),
        read_field(object, "peak_bytes", peak), read_field(object, "predicted_bytes", predicted),
        read_field(object, "bound", row.bound), read_field(object, "budget_bytes", budget),
        read_field(object, "base_bytes", base), read_field(object, "revocations", row.revocations),
        read_field(object, "overrun", row.overrun),
        read_field(object, "recomputed_layers", row.recomputed_layers),
        read_field(object, "layer_calls", row.layer_calls),
        read_field(object, "plan_ns", row.plan_ns), read_field(object, "learning", row.learning)}) {
    if (!outcome) return outcome.error();
  }
  // A loss that is not a number travels as null.
  const auto loss = object.find("loss");
  const bool number = loss != object.end() && loss->is_number();
  row.loss = number ? loss->get<double>() : std::nan("");
  const auto again = object.find("recompute_seconds");
  if (again != object.end() && again->is_number()) row.recompute_seconds = again->get<double>();
  const auto hit = object.find("cache_hit");
  if (hit != object.end() && hit->is_boolean()) row.cache_hit = hit->get<bool>();
  row.peak = Bytes(peak);
  row.predicted = Bytes(predicted);
  row.budget = Bytes(budget);
  row.base = Bytes(base);
  return row;
}

std::string to_string(PolicyStatus status) {
  switch (status) {
    case PolicyStatus::kOk:
      return "ok";
    case PolicyStatus::kOom:
      return "oom";
    case PolicyStatus::kFailed:
      return "failed";
    case PolicyStatus::kInterrupted:
      return "interrupted";
  }
  return "failed";
}

const PolicyResult* reference_of(const RunResult& run) {
  for (const auto& policy : run.policies) {
    if (policy.name == "none") return &policy;
  }
  return nullptr;
}

nlohmann::json summarize(const PolicyResult& policy, const PolicyResult* reference, Bytes budget) {
  const auto& rows = policy.rows;
  const std::span<const StepRow> all = rows;
  std::optional<double> peak;
  for (const auto& row : rows) {
    peak = std::max(peak.value_or(0), static_cast<double>(row.peak.count()));
  }
  if (peak && *peak <= 0) peak.reset();  // nothing was metered: pudica is switched off
  const auto count_if = [&rows](auto predicate) {
    return std::count_if(rows.begin(), rows.end(), predicate);
  };
  const auto calls = sum_of(all, &StepRow::layer_calls);
  const auto recomputed = sum_of(all, &StepRow::recomputed_layers);
  const auto losses = std::min(rows.size(), kLossSteps);
  json out;
  out["name"] = policy.name;
  out["status"] = to_string(policy.status);
  out["detail"] = policy.detail.empty() ? json() : json(policy.detail);
  out["steps"] = rows.size();
  out["step_seconds_median"] = or_null(median(seconds_of(rows)));
  out["step_seconds_quartiles"] = quartiles_of(seconds_of(rows));
  out["time_vs_none"] = or_null(ratio_to(policy, reference, &StepRow::seconds));
  out["cpu_time_vs_none"] = or_null(ratio_to(policy, reference, &StepRow::cpu_seconds));
  out["cpu_time_vs_none_quartiles"] = quartiles_of(cpu_ratios(policy, reference));
  out["warmup_steps"] = count_if([](const StepRow& row) { return row.learning; });
  out["warmup_overhead_steps"] = or_null(warmup_overhead(policy, reference));
  out["peak_bytes"] = peak ? json(static_cast<std::int64_t>(*peak)) : json();
  out["budget_used"] = or_null(most_budget_used(rows, budget));
  out["budgets"] = budgets_of(rows);
  out["oom"] = policy.status == PolicyStatus::kOom;
  out["overruns"] = count_if([](const StepRow& row) { return row.overrun; });
  out["revocations"] = static_cast<std::int64_t>(sum_of(all, &StepRow::revocations));
  out["revoked_steps"] = count_if([](const StepRow& row) { return row.revocations > 0; });
  out["recomputed_share"] = or_null(recomputed_share_of(rows));
  out["recomputed_calls_share"] = calls > 0 ? json(recomputed / calls) : json();
  out["plan_us"] = plan_time_of(rows);
  out["cache"] = policy.cache;
  out["prediction"] = prediction_of(rows);
  out["params_sha256"] = policy.params_sha256.empty() ? json() : json(policy.params_sha256);
  out["loss_first"] = or_null(mean(losses_of(all.first(losses))));
  out["loss_last"] = or_null(mean(losses_of(all.last(losses))));
  return out;
}

nlohmann::json to_json(const RunResult& run) {
  const auto* reference = reference_of(run);
  json out;
  if (run.origin.is_object()) out = run.origin;
  out["schema"] = "pudica.result/1";
  out["machine"] = run.machine;
  out["versions"] = run.versions;
  out["seed"] = run.options.seed;
  out["data"] = data_of(run.options);
  out["model"] = model_of(run.options);
  out["budget_bytes"] = run.budget.count();
  out["floor_bytes"] = run.floor.count();
  out["menu_floor_bytes"] = run.menu_floor ? json(run.menu_floor->count()) : json();
  out["keep_all_bytes"] = run.keep_all.count();
  out["steps"] = run.options.steps;
  out["policies"] = json::array();
  for (const auto& policy : run.policies) {
    out["policies"].push_back(summarize(policy, reference, run.budget));
  }
  return out;
}

}  // namespace pudica::train
