#include "torch/random_script_model.h"

#include <array>
#include <random>
#include <stdexcept>

namespace pudica::testing {
namespace {

class RandomPlans final : public Policy {
 public:
  explicit RandomPlans(std::uint64_t seed) : random_(seed) {}
  [[nodiscard]] std::string name() const override { return "random"; }
  [[nodiscard]] bool wants_menus() const override { return true; }
  void on_structure(const StepStructure& /*structure*/) override {}
  StepDecision begin_step(const StepContext& /*context*/) override {
    if (random_() % 8 == 0) return {nullptr, random_() % 2 == 0};
    const std::array modes{Mode::keep(), Mode::full(), Mode::selective(0), Mode::selective(1),
                           Mode::offload()};
    Plan plan;
    for (int i = 0; i < 4; ++i) {
      plan.modes.push_back(modes.at(random_() % modes.size()));
      const bool joins = i > 0 && random_() % 2 == 0 && plan.modes[i] == Mode::full() &&
                         plan.modes[i - 1] == Mode::full();
      plan.joined.push_back(joins ? 1 : 0);
    }
    plan.default_mode = modes.at(random_() % modes.size());
    plan.revocable = random_() % 2 == 0;
    return {std::make_shared<const Plan>(plan), random_() % 2 == 0};
  }
  void end_step(const StepOutcome& /*outcome*/) override {}

 private:
  std::mt19937_64 random_;
};

// A forward is open while this lives.
class OpenForward {
 public:
  explicit OpenForward(int& count) : count_(count) { ++count_; }
  ~OpenForward() { --count_; }
  OpenForward(const OpenForward&) = delete;
  OpenForward& operator=(const OpenForward&) = delete;

 private:
  int& count_;
};

// What a layer that does not keep its promise gives when it is run again.
at::Tensor something_else(const at::Tensor& x, std::size_t way) {
  switch (way % 4) {
    case 0:
      throw std::runtime_error("a layer fails when it is run again");
    case 1:
      return x;
    case 2:
      return at::cat({x, x}).exp().tanh();
    default:
      return x.to(at::kDouble).exp().sum().to(at::kFloat);
  }
}

}  // namespace

std::shared_ptr<Policy> make_random_plans(std::uint64_t seed) {
  return std::make_shared<RandomPlans>(seed);
}

std::string bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  const at::Tensor values = tensor.detach().contiguous();
  return {static_cast<const char*>(values.const_data_ptr()), values.nbytes()};
}

at::Tensor ScriptLayer::forward(const at::Tensor& x) const {
  const at::Tensor hidden = at::gelu(at::linear(x, in)).tanh();
  return x + at::linear(has_noise ? at::dropout(hidden, .2, /*train=*/true) : hidden, out);
}

std::vector<at::Tensor> ScriptModel::parameters() const {
  std::vector<at::Tensor> all;
  for (const auto& layer : layers) {
    all.push_back(layer->in);
    all.push_back(layer->out);
  }
  return all;
}

void ScriptModel::begin_step(const at::Tensor& input) const {
  if (handle) handle->begin_step(ShapeKey{1, input.size(0)});
}

at::Tensor ScriptModel::run_layer(std::size_t index, const at::Tensor& x,
                                  const ScriptForward& how) const {
  const bool here = index == how.at;
  const auto ran = std::make_shared<std::size_t>(0);
  const auto function = [layer = layers[index], here, inside = how.inside, term = how.term,
                         after = how.inside_after, fails = fails_again, index,
                         ran](const at::Tensor& in) {
    if (++*ran > 1 && fails) return something_else(in, index + *ran);
    if (here && inside && !after) inside();
    at::Tensor out = layer->forward(here && term ? in + term(in) : in);
    if (here && inside && after) inside();
    return out;
  };
  if (!handle) return function(x);
  LayerOptions options;
  options.unproven = how.unproven;
  const auto number = static_cast<std::int64_t>(index);
  if (!how.by_halves) return handle->layer(number, function, x, options);
  const LayerFunction rerun = [function](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{function(inputs[0])};
  };
  if (!handle->enter_layer(rerun, {x}, options)) return function(x);
  at::Tensor out;
  try {
    out = function(x);
  } catch (...) {
    handle->abandon_layers();
    throw;
  }
  handle->leave_layer({out});
  return out;
}

at::Tensor ScriptModel::forward(at::Tensor x, const ScriptForward& how, at::Tensor* middle) {
  const OpenForward open(in_forward);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    x = run_layer(i, x, how);
    if (middle != nullptr && (i == how.at || i + 1 == layers.size()) && !middle->defined()) {
      *middle = x;
    }
    if (i == how.at && how.behind) how.behind();
  }
  return x;
}

}  // namespace pudica::testing
