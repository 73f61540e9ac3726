#include "native/random_policy.h"

#include <charconv>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

namespace pudica::python {
namespace {

class RandomPolicy final : public Policy {
 public:
  explicit RandomPolicy(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] std::string name() const override { return "random"; }
  [[nodiscard]] bool wants_menus() const override { return true; }
  void on_structure(const StepStructure& structure) override { structure_ = structure; }
  void end_step(const StepOutcome& /*outcome*/) override {}

  StepDecision begin_step(const StepContext& context) override {
    auto plan = std::make_shared<Plan>();
    plan->id = ++plans_made_;
    plan->shape = context.shape;
    plan->default_mode = Mode::full();
    plan->revocable = one_in(2);
    plan->reason = "policy random";
    for (const auto& layer : structure_.layers) {
      const Mode mode = draw(layer.layer_class);
      const bool follows_full = !plan->modes.empty() && plan->modes.back() == Mode::full();
      plan->joined.push_back(mode == Mode::full() && follows_full && one_in(3) ? 1 : 0);
      plan->modes.push_back(mode);
    }
    return {std::move(plan), false};
  }

 private:
  // The engine's own numbers: distributions differ between standard libraries.
  bool one_in(std::uint64_t n) { return random_() % n == 0; }

  Mode draw(std::uint16_t layer_class) {
    const std::uint64_t kind = random_() % 6;
    if (kind < 2) return Mode::full();
    if (kind == 3) return Mode::offload();
    const bool has_menu =
        layer_class < structure_.menus.size() && !structure_.menus[layer_class].steps.empty();
    if (kind == 2 || !has_menu) return Mode::keep();
    const std::size_t steps = structure_.menus[layer_class].steps.size();
    return Mode::selective(static_cast<std::uint16_t>(random_() % steps));
  }

  std::mt19937_64 random_;
  StepStructure structure_;
  std::uint64_t plans_made_ = 0;
};

}  // namespace

std::shared_ptr<Policy> make_random_policy(std::uint64_t seed) {
  return std::make_shared<RandomPolicy>(seed);
}

std::shared_ptr<Policy> random_policy_of(std::string_view spec) {
  constexpr std::string_view kName = "random";
  constexpr std::string_view kSeed = "random:seed=";
  if (spec == kName) return make_random_policy(0);
  if (!spec.starts_with(kSeed)) return nullptr;
  const std::string_view digits = spec.substr(kSeed.size());
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seed);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw std::runtime_error("config: policy '" + std::string(spec) +
                             "'; expected random:seed=N with a whole number N");
  }
  return make_random_policy(seed);
}

}  // namespace pudica::python
