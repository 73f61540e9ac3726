// What the hook layer costs when it has nothing to do: a step of the demo's model against the same
// step without a handle. Every layer kept hook-free; kept revocably; kept with the tape that lets
// single tensors be revoked, none of which are; and the policy pudica under a budget that no step
// comes near. Interleaved pairs, process CPU clock; the ratio of each pair is what counts. Steps
// vary by more than the difference: the same calls on a few tokens tell it, in seconds of a step.
// Usage: hook_bench [--calls PAIRS] [--json FILE]
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include "bench/harness.h"
#include "bench/model_steps.h"
#include "pudica/controller.h"

namespace pudica {
namespace {

constexpr std::uint64_t kSeed = 7;
constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kLength = 128;
constexpr std::int64_t kFewTokens = 8;
constexpr int kWarmupSteps = 12;     // in which menus are found, segments learned and plans made
constexpr int kFewTokensPairs = 10;  // for each pair of whole steps

enum class Keep : std::uint8_t { kHookFree, kRevocable, kTaped };

class KeepPolicy final : public Policy {
 public:
  explicit KeepPolicy(Keep keep) : keep_(keep) {
    Plan plan;
    plan.id = 1;
    plan.revocable = keep != Keep::kHookFree;
    // A kept layer has a tape where the plan may not hold.
    plan.feasible = keep != Keep::kTaped;
    plan_ = std::make_shared<const Plan>(std::move(plan));
  }
  [[nodiscard]] std::string name() const override { return "keep"; }
  [[nodiscard]] bool wants_menus() const override { return keep_ == Keep::kTaped; }
  void on_structure(const StepStructure& structure) override { structure_ = structure; }
  StepDecision begin_step(const StepContext&) override { return {plan_, false}; }
  void end_step(const StepOutcome&) override {}
  [[nodiscard]] bool has_menu() const {
    return !structure_.menus.empty() && !structure_.menus.front().steps.empty();
  }

 private:
  Keep keep_;
  PlanPtr plan_;
  StepStructure structure_;
};

struct Case {
  std::string name;
  std::shared_ptr<Policy> policy;
  Bytes budget_bytes{0};
};

// Exits where the case would measure something else than its name says.
void check(const Case& item) {
  const auto* keeping = dynamic_cast<const KeepPolicy*>(item.policy.get());
  if (keeping != nullptr && keeping->wants_menus() && !keeping->has_menu()) {
    std::fprintf(stderr, "hook_bench: no menu was found, so nothing is taped\n");
    std::exit(1);
  }
  const auto* controller = dynamic_cast<const Controller*>(item.policy.get());
  if (controller != nullptr && controller->state() != ControllerState::kPlanning) {
    std::fprintf(stderr, "hook_bench: pudica is %s after %d steps, expected planning\n",
                 to_string(controller->state()).c_str(), kWarmupSteps);
    std::exit(1);
  }
}

// Seconds of steps with and without the handle, one after the other.
struct Pairs {
  std::vector<double> hooked;
  std::vector<double> plain;
};

Pairs step_pairs(bench::ModelSteps& model, Handle& handle, const train::TensorBatch& batch,
                 std::int64_t count) {
  Pairs pairs;
  for (std::int64_t i = 0; i < count; ++i) {
    // Each order in turn, so that drift of the machine hits both alike.
    double hooked = i % 2 == 0 ? 0 : model.step(&handle, batch);
    pairs.plain.push_back(model.step(nullptr, batch));
    if (i % 2 == 0) hooked = model.step(&handle, batch);
    pairs.hooked.push_back(hooked);
  }
  return pairs;
}

int run(int argc, char** argv) {
  const bench::Arguments arguments = bench::parse_arguments(argc, argv, /*calls=*/60);
  install_meter();
  at::set_num_threads(1);
  bench::ModelSteps model(kLength, kSeed);
  const train::TensorBatch batch = bench::random_batch(kBatch, kLength, kSeed);
  const train::TensorBatch few = bench::random_batch(1, kFewTokens, kSeed);
  for (int i = 0; i < 5; ++i) model.step(nullptr, batch);
  const std::vector<Case> cases = {
      {"kept without hooks", std::make_shared<KeepPolicy>(Keep::kHookFree)},
      {"kept revocably", std::make_shared<KeepPolicy>(Keep::kRevocable)},
      {"kept with a tape", std::make_shared<KeepPolicy>(Keep::kTaped)},
      {"pudica, budget never binds", make_controller({}), Bytes(std::int64_t{1} << 40)}};
  bench::Report report("hook", kSeed);
  for (const Case& item : cases) {
    AttachOptions options;
    options.policy = item.policy;
    options.budget_bytes = item.budget_bytes;
    options.parameters = model.parameters();
    const auto handle = bench::attach_or_exit(std::move(options));
    for (int i = 0; i < kWarmupSteps; ++i) model.step(handle.get(), batch);
    check(item);
    const Pairs whole = step_pairs(model, *handle, batch, arguments.calls);
    std::vector<double> ratios;
    for (std::size_t i = 0; i < whole.plain.size(); ++i) {
      ratios.push_back(whole.hooked[i] / whole.plain[i]);
    }
    report.add(item.name + " / without handle", "ratio", ratios);
    std::vector<double> plain_ms;
    for (const double seconds : whole.plain) plain_ms.push_back(1e3 * seconds);
    report.add("without handle, beside " + item.name, "ms", plain_ms);
    for (int i = 0; i < kWarmupSteps; ++i) model.step(handle.get(), few);
    const Pairs small = step_pairs(model, *handle, few, kFewTokensPairs * arguments.calls);
    std::vector<double> cost_us;
    for (std::size_t i = 0; i < small.plain.size(); ++i) {
      cost_us.push_back(1e6 * (small.hooked[i] - small.plain[i]));
    }
    report.add(item.name + ", on few tokens, less without handle", "us", cost_us);
  }
  return report.write(arguments);
}

}  // namespace
}  // namespace pudica

int main(int argc, char** argv) { return pudica::run(argc, argv); }
