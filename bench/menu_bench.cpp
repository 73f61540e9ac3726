// How well the extra time of a plan is predicted: the policy pudica learns the demo's model in
// steps of varying length, then random plans over its menu run beside steps that keep everything,
// and their extra time (process CPU clock, Hodges-Lehmann estimate over interleaved rounds) is set
// against the sum of the modes' learned times, as predicted right before each step, at the pace of
// the steps so far; and as predicted once, before the first round. Beside it the halves of the
// rounds are set against each other: what measuring the same plans again gives, which no prediction
// can be asked to beat. Plans predicted to cost less than 5 % of a step are passed over. Usage:
// menu_bench [--calls ROUNDS] [--json FILE]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include "bench/harness.h"
#include "bench/model_steps.h"
#include "pudica/controller.h"
#include "train/random.h"

namespace pudica {
namespace {

constexpr std::uint64_t kSeed = 11;
constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kLongest = 256;
constexpr int kLearningSteps = 60;
constexpr std::size_t kPlans = 30;
constexpr double kLeastShare = 0.05;  // of a step, predicted

// Lets the controller plan, or hands out a plan of ours in the place of its own.
class SteeredPolicy final : public Policy {
 public:
  SteeredPolicy() : controller_(make_controller({})) {}
  [[nodiscard]] std::string name() const override { return "steered"; }
  [[nodiscard]] bool wants_menus() const override { return controller_->wants_menus(); }
  void on_structure(const StepStructure& structure) override {
    controller_->on_structure(structure);
  }
  StepDecision begin_step(const StepContext& context) override {
    context_ = context;
    StepDecision decision = controller_->begin_step(context);
    return forced_ ? StepDecision{forced_, false} : decision;
  }
  void end_step(const StepOutcome& outcome) override { controller_->end_step(outcome); }
  void learn_times(const std::vector<SegmentTime>& times) override {
    controller_->learn_times(times);
  }

  void force(PlanPtr plan) { forced_ = std::move(plan); }
  [[nodiscard]] Result<StepCosts> costs(const ShapeKey& shape) const {
    StepContext context = context_;
    context.shape = shape;
    return controller_->costs(context);
  }

 private:
  std::unique_ptr<Controller> controller_;
  StepContext context_;
  PlanPtr forced_;
};

struct RandomPlan {
  PlanPtr plan;
  std::vector<std::uint8_t> choice;
  double predicted_seconds = 0;  // before the first round
  // Of the steps beside it, which keep everything.
  std::vector<double> predicted_shares;
  std::vector<double> measured_shares;
};

PlanPtr plan_of(const StepCosts& costs, const std::vector<std::uint8_t>& choice) {
  auto plan = std::make_shared<Plan>();
  plan->id = 1;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    plan->modes.push_back(costs.layers[i].modes[choice[i]].mode);
  }
  // Hook-free where kept, and no more held ready to be revoked than a plan that is sure to fit.
  plan->revocable = false;
  plan->predicted_peak_bytes = Bytes(1);
  return plan;
}

// Of each plan another share of the layers is not kept, each in any of its modes.
std::vector<RandomPlan> draw_plans(const StepCosts& costs) {
  train::Random random(kSeed);
  std::vector<RandomPlan> plans;
  for (int tries = 0; plans.size() < kPlans && tries < 10000; ++tries) {
    const std::uint64_t percent = 10 + random.below(91);
    std::vector<std::uint8_t> choice;
    for (const LayerCosts& layer : costs.layers) {
      const bool kept = random.below(100) >= percent;
      std::uint64_t mode = 0;
      while (kept && layer.modes[mode].mode != Mode::keep()) ++mode;
      if (!kept) mode = random.below(layer.modes.size());
      choice.push_back(static_cast<std::uint8_t>(mode));
    }
    const double predicted = step_extra_seconds(costs, choice);
    if (predicted < kLeastShare * costs.step_seconds) continue;
    plans.push_back({plan_of(costs, choice), choice, predicted, {}, {}});
  }
  return plans;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median of the means of all pairs: as robust as a median for what a busy machine does to
// times, and nearly as sure as a mean (Hodges and Lehmann 1963).
double center(const std::vector<double>& values) {
  std::vector<double> means;
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = i; j < values.size(); ++j) means.push_back((values[i] + values[j]) / 2);
  }
  return median(std::move(means));
}

// The center over every second round, the first or the second of two.
double center_of_half(const std::vector<double>& values, std::size_t half) {
  std::vector<double> taken;
  for (std::size_t i = half; i < values.size(); i += 2) taken.push_back(values[i]);
  return taken.empty() ? values.front() : center(taken);
}

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> out(values.size());
  for (std::size_t k = 0; k < order.size(); ++k) out[order[k]] = static_cast<double>(k);
  return out;
}

// Spearman's, for values without ties.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> ranks_a = ranks(a);
  const std::vector<double> ranks_b = ranks(b);
  const auto n = static_cast<double>(a.size());
  double squares = 0;
  for (std::size_t k = 0; k < a.size(); ++k) squares += std::pow(ranks_a[k] - ranks_b[k], 2);
  return 1 - 6 * squares / (n * (n * n - 1));
}

// The peak of a step that keeps everything, and what is live before it.
std::pair<Bytes, Bytes> measure_range(bench::ModelSteps& model) {
  const train::TensorBatch batch = bench::random_batch(kBatch, kLongest, kSeed);
  model.step(nullptr, batch);
  const c10::Device device(c10::kCPU);
  const Bytes base = bytes_in_use(device);
  reset_peak_bytes(device);
  model.step(nullptr, batch);
  return {base, peak_bytes_in_use(device)};
}

StepCosts costs_or_exit(const SteeredPolicy& policy, std::int64_t length) {
  auto costs = policy.costs({kBatch, length});
  if (costs) return std::move(*costs);
  std::fprintf(stderr, "menu_bench: nothing was learned: %s\n", costs.error().message.c_str());
  std::exit(1);
}

void learn(bench::ModelSteps& model, Handle& handle) {
  train::Random random(kSeed);
  for (int i = 0; i < kLearningSteps; ++i) {
    const auto drawn = static_cast<std::int64_t>(48 + random.below(kLongest - 47));
    model.step(&handle, bench::random_batch(kBatch, drawn, random.next()));
  }
}

// A step that keeps everything goes before and after each plan's: the machine drifts.
void run_rounds(bench::ModelSteps& model, Handle& handle, SteeredPolicy& policy,
                std::int64_t length, std::int64_t rounds, std::vector<RandomPlan>& plans,
                std::vector<double>& kept_seconds) {
  const train::TensorBatch batch = bench::random_batch(kBatch, length, kSeed + 1);
  auto keep = std::make_shared<Plan>();
  keep->id = 2;
  keep->revocable = false;
  keep->predicted_peak_bytes = Bytes(1);
  const auto step_with = [&](PlanPtr plan) {
    policy.force(std::move(plan));
    return model.step(&handle, batch);
  };
  for (std::int64_t round = 0; round < rounds; ++round) {
    double before = step_with(keep);
    for (RandomPlan& item : plans) {
      const double extra = step_extra_seconds(costs_or_exit(policy, length), item.choice);
      const double planned = step_with(item.plan);
      const double after = step_with(keep);
      item.predicted_shares.push_back(2 * extra / (before + after));
      item.measured_shares.push_back(2 * planned / (before + after) - 1);
      kept_seconds.push_back(after);
      before = after;
    }
  }
  policy.force(nullptr);
}

int run(int argc, char** argv) {
  const bench::Arguments arguments = bench::parse_arguments(argc, argv, /*calls=*/12);
  install_meter();
  at::set_num_threads(1);
  bench::ModelSteps model(kLongest, kSeed);
  const auto [base, peak] = measure_range(model);
  bench::Report report("menu", kSeed);
  for (const std::int64_t length : {96, 224}) {
    const auto policy = std::make_shared<SteeredPolicy>();
    AttachOptions options;
    options.policy = policy;
    options.parameters = model.parameters();
    options.budget_bytes = base + Bytes((peak - base).count() * 45 / 100);
    const auto handle = bench::attach_or_exit(std::move(options));
    learn(model, *handle);
    const StepCosts costs = costs_or_exit(*policy, length);
    std::vector<RandomPlan> plans = draw_plans(costs);
    if (plans.size() < kPlans) {
      std::fprintf(stderr, "menu_bench: %zu plans of 5 %% and more, expected %zu\n", plans.size(),
                   kPlans);
      return 1;
    }
    std::vector<double> kept_seconds;
    run_rounds(model, *handle, *policy, length, arguments.calls, plans, kept_seconds);
    const double step = median(kept_seconds);
    std::vector<double> errors;
    std::vector<double> errors_once;
    std::vector<double> errors_of_shares;  // each of its own step: free of the machine's pace
    std::vector<double> predicted;
    std::vector<double> measured;
    std::vector<double> halves[2];
    std::vector<double> apart;
    for (const RandomPlan& plan : plans) {
      predicted.push_back(center(plan.predicted_shares));
      measured.push_back(center(plan.measured_shares));
      for (const std::size_t half : {0U, 1U}) {
        halves[half].push_back(center_of_half(plan.measured_shares, half));
      }
      apart.push_back(std::abs(halves[0].back() / halves[1].back() - 1));
      errors.push_back(std::abs(predicted.back() / measured.back() - 1));
      errors_once.push_back(std::abs(plan.predicted_seconds / step / measured.back() - 1));
      const double share = plan.predicted_seconds / costs.step_seconds;
      errors_of_shares.push_back(std::abs(share / measured.back() - 1));
    }
    const std::string at = " at " + std::to_string(kBatch) + "x" + std::to_string(length);
    report.add("error of predicted extra time" + at, "share", errors);
    report.add("error, all predicted before the first round" + at, "share", errors_once);
    report.add("error, as shares of the predicted and the measured step" + at, "share",
               errors_of_shares);
    report.add("rank correlation over 30 plans" + at, "", {rank_correlation(predicted, measured)});
    report.add("predicted extra time of the plans" + at, "step", predicted);
    report.add("measured extra time of the plans" + at, "step", measured);
    report.add("error of one half of the rounds against the other" + at, "share", apart);
    report.add("rank correlation of the two halves" + at, "",
               {rank_correlation(halves[0], halves[1])});
    report.add("predicted / measured step that keeps all" + at, "ratio",
               {costs.step_seconds / step});
    report.add("modes of a layer" + at, "", {static_cast<double>(costs.layers[1].modes.size())});
  }
  return report.write(arguments);
}

}  // namespace
}  // namespace pudica

int main(int argc, char** argv) { return pudica::run(argc, argv); }
