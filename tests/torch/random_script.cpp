#include "torch/random_script.h"

#include <array>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "pudica/torch.h"
#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

constexpr std::int64_t kColumns = 8;
constexpr std::size_t kMostAlive = 4;
constexpr std::size_t kNobody = 1000;

struct Layer {
  at::Tensor in = (at::randn({kColumns, kColumns}) / 3.).set_requires_grad(true);
  at::Tensor out = (at::randn({kColumns, kColumns}) / 3.).set_requires_grad(true);
  bool has_noise = true;

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const {
    const at::Tensor hidden = at::gelu(at::linear(x, in)).tanh();
    return x + at::linear(has_noise ? at::dropout(hidden, .2, /*train=*/true) : hidden, out);
  }
};

// Plans at random: modes, joint segments, recording, revocable or not.
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

std::string bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  const at::Tensor values = tensor.detach().contiguous();
  return {static_cast<const char*>(values.const_data_ptr()), values.nbytes()};
}

struct Model {
  std::vector<std::shared_ptr<Layer>> layers;
  std::unique_ptr<Handle> handle;

  [[nodiscard]] std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all;
    for (const auto& layer : layers) {
      all.push_back(layer->in);
      all.push_back(layer->out);
    }
    return all;
  }
  void begin_step(const at::Tensor& input) const {
    if (handle) handle->begin_step(ShapeKey{1, input.size(0)});
  }
  // `before` runs inside the layer's function.
  [[nodiscard]] at::Tensor run_layer(std::size_t index, const at::Tensor& x,
                                     const std::function<void()>& before = {}) const {
    const auto function = [layer = layers[index], before](const at::Tensor& in) {
      if (before) before();
      return layer->forward(in);
    };
    if (!handle) return function(x);
    return handle->layer(static_cast<std::int64_t>(index), function, x);
  }
  [[nodiscard]] at::Tensor forward(at::Tensor x, std::size_t throws_at = kNobody) const {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      x = run_layer(i, x, [i, throws_at] {
        if (i == throws_at) throw std::runtime_error("a layer fails");
      });
    }
    return x;
  }
};

}  // namespace

// The models and what lives of them while a script runs.
class RandomScript::World {
 public:
  World(const RandomScript& script, bool attached) : script_(script), attached_(attached) {
    for (const std::size_t count : script.layers_) {
      Model model;
      for (std::size_t i = 0; i < count; ++i) {
        model.layers.push_back(std::make_shared<Layer>());
        model.layers.back()->has_noise = script.has_noise_;
      }
      models_.push_back(std::move(model));
    }
    for (std::size_t i = 0; i < models_.size(); ++i) attach_model(i, script.seed_ + i);
  }

  void run(const Operation& one) {
    const auto contained = [&] {
      try {
        perform(one);
      } catch (const std::exception&) {
        seen_.emplace_back("threw");
      }
    };
    if (one.on_thread) {
      std::thread(contained).join();
    } else {
      contained();
    }
  }

  Seen end() {
    for (const Model& model : models_) {
      for (const at::Tensor& one : model.parameters()) {
        seen_.push_back(bytes_of(one));
        seen_.push_back(bytes_of(one.grad()));
      }
      if (model.handle && model.handle->failures() > 0)
        seen_.emplace_back("failures inside pudica");
    }
    seen_.push_back(bytes_of(at::rand({1})));  // as many random numbers were drawn
    return std::move(seen_);
  }

 private:
  void attach_model(std::size_t index, std::size_t choice) {
    if (!attached_) return;
    Model& model = models_[index];
    AttachOptions options;
    options.parameters = model.parameters();
    options.budget_bytes = budget(choice / 3);
    options.clock = operator_clock();
    if (choice % 3 != 0) options.policy = std::make_shared<RandomPlans>(choice);
    auto handle = attach(std::move(options));
    if (!handle) throw std::logic_error(handle.error().message);
    model.handle = std::move(*handle);
  }

  // None; less than anything needs; about what a step needs above what is there.
  static Bytes budget(std::size_t choice) {
    if (choice % 3 == 0) return Bytes(0);
    if (choice % 3 == 1) return Bytes(1);
    const auto some = static_cast<std::int64_t>(choice / 3 % 16);
    return bytes_in_use(c10::Device(c10::DeviceType::CPU)) + Bytes(600 * some);
  }

  [[nodiscard]] at::Tensor input_of(const Operation& one) const {
    if (!one.reads_tensor || alive_.empty()) return at::randn({one.rows, kColumns});
    const at::Tensor& found = alive_[one.tensor % alive_.size()];
    return one.detaches ? found.detach() : found;
  }

  void hold(at::Tensor output) {
    seen_.push_back(bytes_of(output));
    if (alive_.size() == kMostAlive) alive_.erase(alive_.begin());
    alive_.push_back(std::move(output));
  }

  void forward(const Operation& one, std::size_t throws_at = kNobody) {
    const Model& model = models_[one.model];
    const at::Tensor input = input_of(one);
    if (one.begins_step) model.begin_step(input);
    hold(model.forward(input, throws_at));
  }

  void forward_of_two(const Operation& one) {
    const Model& left = models_[one.model];
    const Model& right = models_[one.other];
    at::Tensor x = input_of(one);
    at::Tensor y = at::randn({one.rows + 1, kColumns});
    left.begin_step(x);
    right.begin_step(y);
    for (std::size_t i = 0; i < std::max(left.layers.size(), right.layers.size()); ++i) {
      if (i < left.layers.size()) x = left.run_layer(i, x);
      if (i < right.layers.size()) y = right.run_layer(i, y);
    }
    hold(x);
    hold(y);
  }

  void forward_inside(const Operation& one) {
    const Model& outer = models_[one.model];
    const Model& inner = models_[one.other];
    at::Tensor x = input_of(one);
    outer.begin_step(x);
    const bool begins = one.begins_step && one.model != one.other;
    for (std::size_t i = 0; i < outer.layers.size(); ++i) {
      const at::Tensor given = x;
      x = outer.run_layer(i, x, [&inner, given, begins] {
        const c10::AutoGradMode no_gradients(false);
        if (begins) inner.begin_step(given);
        static_cast<void>(inner.forward(given));
      });
      if (one.model == one.other) break;
    }
    hold(x);
  }

  // What a callback of the user's may do in the middle of a forward or a backward.
  void disturb(const Operation& one) {
    constexpr std::array kWays{Kind::kBeginStep, Kind::kEndStep, Kind::kSetBudget, Kind::kDetach,
                               Kind::kOptimizerStep};
    Operation inner = one;
    inner.kind = kWays.at(one.choice % kWays.size());
    inner.model = one.other;
    if (inner.kind == Kind::kOptimizerStep) {
      // Random numbers that are drawn in the first run alone make a layer another one.
      if (script_.has_noise_) return;
      const c10::AutoGradMode no_gradients(false);
      static_cast<void>(models_[inner.model].forward(at::ones({one.rows, kColumns})));
    } else {
      perform_on_handle(inner, models_[inner.model]);
    }
  }

  void forward_disturbed(const Operation& one) {
    const Model& model = models_[one.model];
    at::Tensor x = input_of(one);
    if (one.begins_step) model.begin_step(x);
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
      const bool here = i == one.choice % model.layers.size();
      // Once: a callback is no part of the layer's function, and is not run again with it.
      const auto done = std::make_shared<bool>(false);
      x = model.run_layer(i, x, [this, &one, here, done] {
        if (!here || std::exchange(*done, true)) return;
        disturb(one);
      });
    }
    hold(x);
  }

  void backward_disturbed(const Operation& one) {
    if (alive_.empty()) return;
    const at::Tensor& output = alive_[one.tensor % alive_.size()];
    if (!output.requires_grad()) return;
    output.register_hook([this, one, done = std::make_shared<bool>(false)](const at::Tensor&) {
      if (!std::exchange(*done, true)) disturb(one);
      return at::Tensor();
    });
    backward(one, /*retains=*/one.choice % 2 == 0);
  }

  void backward(const Operation& one, bool retains) {
    if (alive_.empty()) return;
    std::vector<at::Tensor> losses{alive_[one.tensor % alive_.size()].pow(2).mean()};
    if (one.kind == Kind::kBackwardOfTwo) losses.push_back(alive_.back().tanh().sum());
    torch::autograd::backward(losses, {}, retains);
    note_gradients();
  }

  void gradients(const Operation& one, bool twice) {
    if (alive_.empty()) return;
    const std::vector<at::Tensor> parameters = models_[one.model].parameters();
    const at::Tensor loss = alive_[one.tensor % alive_.size()].pow(2).mean();
    const auto first = torch::autograd::grad({loss}, parameters, {}, /*retain_graph=*/twice,
                                             /*create_graph=*/twice, /*allow_unused=*/true);
    for (const at::Tensor& gradient : first) seen_.push_back(bytes_of(gradient));
    if (!twice) return;
    at::Tensor penalty = at::zeros({});
    for (const at::Tensor& gradient : first) {
      if (gradient.defined()) penalty = penalty + gradient.pow(2).sum();
    }
    torch::autograd::backward({penalty});
    note_gradients();
  }

  void note_gradients() {
    for (const Model& model : models_) {
      for (const at::Tensor& one : model.parameters()) seen_.push_back(bytes_of(one.grad()));
    }
  }

  void update(const Operation& one) {
    const c10::AutoGradMode no_gradients(false);
    for (at::Tensor parameter : models_[one.model].parameters()) {
      if (!parameter.grad().defined()) continue;
      parameter.sub_(parameter.grad().clamp(-1, 1) * 1e-2);
      parameter.mutable_grad() = at::Tensor();
    }
  }

  // Each on a thread of its own, without noise: then neither can tell that the other is there.
  void both_at_once(const Operation& one) {
    if (one.model == one.other || script_.has_noise_) return;
    std::array<Seen, 2> seen;
    std::array<std::thread, 2> threads;
    const std::array<std::size_t, 2> at{one.model, one.other};
    for (std::size_t k = 0; k < 2; ++k) {
      threads.at(k) = std::thread([this, &seen, &one, &at, k] {
        Model& model = models_[at.at(k)];
        for (int step = 0; step < 3; ++step) {
          const at::Tensor input = at::full({one.rows, kColumns}, .1 * (step + 1));
          model.begin_step(input);
          const at::Tensor output = model.forward(input);
          seen.at(k).push_back(bytes_of(output));
          torch::autograd::backward({output.pow(2).mean()});
          if (model.handle && step != 1) static_cast<void>(model.handle->end_step());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (Seen& one_seen : seen) {
      for (std::string& bytes : one_seen) seen_.push_back(std::move(bytes));
    }
    note_gradients();
  }

  void perform(const Operation& one) {
    Model& model = models_[one.model];
    switch (one.kind) {
      case Kind::kForward:
        return forward(one);
      case Kind::kForwardThatThrows:
        return forward(one, one.choice % model.layers.size());
      case Kind::kForwardOfTwo:
        return forward_of_two(one);
      case Kind::kForwardInside:
        return forward_inside(one);
      case Kind::kForwardDisturbed:
        return forward_disturbed(one);
      case Kind::kForwardNoGrad: {
        const c10::AutoGradMode no_gradients(false);
        return forward(one);
      }
      case Kind::kBackward:
      case Kind::kBackwardOfTwo:
        return backward(one, /*retains=*/false);
      case Kind::kBackwardRetaining:
        return backward(one, /*retains=*/true);
      case Kind::kBackwardDisturbed:
        return backward_disturbed(one);
      case Kind::kGradients:
        return gradients(one, /*twice=*/false);
      case Kind::kDoubleBackward:
        return gradients(one, /*twice=*/true);
      case Kind::kOptimizerStep:
        return update(one);
      case Kind::kDropGraph:
        if (!alive_.empty()) {
          alive_.erase(alive_.begin() + static_cast<std::ptrdiff_t>(one.tensor % alive_.size()));
        }
        return;
      case Kind::kClearGradients:
        for (at::Tensor parameter : model.parameters()) parameter.mutable_grad() = at::Tensor();
        return;
      case Kind::kBothAtOnce:
        return both_at_once(one);
      default:
        return perform_on_handle(one, model);
    }
  }

  void perform_on_handle(const Operation& one, Model& model) {
    if (one.kind == Kind::kAttachAnew) {
      model.handle.reset();
      return attach_model(one.model, one.choice);
    }
    if (!model.handle) return;
    if (one.kind == Kind::kBeginStep) model.handle->begin_step(ShapeKey{1, one.rows});
    if (one.kind == Kind::kEndStep) static_cast<void>(model.handle->end_step());
    if (one.kind == Kind::kSetBudget) model.handle->set_budget(budget(one.choice));
    if (one.kind == Kind::kDetach) model.handle->detach();
  }

  const RandomScript& script_;
  bool attached_;
  std::vector<Model> models_;
  std::vector<at::Tensor> alive_;
  Seen seen_;
};

RandomScript::RandomScript(std::uint64_t seed) : seed_(seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&random](std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
  };
  const std::size_t models = 2 + pick(2);
  for (std::size_t i = 0; i < models; ++i) layers_.push_back(1 + pick(4));
  has_noise_ = pick(4) != 0;
  // Forwards and backwards more often than the rest.
  std::vector<Kind> kinds(8, Kind::kForward);
  kinds.insert(kinds.end(), 6, Kind::kBackward);
  if (!has_noise_) kinds.insert(kinds.end(), 3, Kind::kBothAtOnce);
  for (auto kind = static_cast<int>(Kind::kForwardThatThrows);
       kind <= static_cast<int>(Kind::kBothAtOnce); ++kind) {
    kinds.push_back(static_cast<Kind>(kind));
  }
  const std::size_t length = 8 + pick(24);
  for (std::size_t i = 0; i < length; ++i) {
    Operation one;
    one.kind = kinds[pick(kinds.size())];
    one.model = pick(models);
    one.other = pick(models);
    one.tensor = pick(kMostAlive);
    one.rows = 1 + static_cast<std::int64_t>(pick(5));
    one.reads_tensor = pick(2) == 0;
    one.detaches = pick(3) == 0;
    one.begins_step = pick(8) != 0;
    one.on_thread = pick(8) == 0;
    one.choice = pick(1000);
    operations_.push_back(one);
  }
}

RandomScript::Seen RandomScript::run(bool attached) const {
  at::manual_seed(seed_);
  World world(*this, attached);
  for (const Operation& one : operations_) world.run(one);
  return world.end();
}

std::string RandomScript::in_words(const Operation& one) {
  constexpr std::array kNames{"forward",
                              "forward that throws",
                              "forward of two",
                              "forward inside",
                              "forward disturbed",
                              "no-grad forward",
                              "backward",
                              "backward, retained",
                              "backward of two",
                              "backward disturbed",
                              "gradients",
                              "double backward",
                              "begin step",
                              "end step",
                              "optimizer step",
                              "drop graph",
                              "clear gradients",
                              "attach anew",
                              "detach",
                              "set budget",
                              "both at once"};
  std::string text = kNames.at(static_cast<std::size_t>(one.kind));
  text += " of " + std::to_string(one.model) + " and " + std::to_string(one.other);
  text += ", tensor " + std::to_string(one.tensor) + ", rows " + std::to_string(one.rows);
  if (one.reads_tensor) text += one.detaches ? ", reads it detached" : ", reads it";
  if (!one.begins_step) text += ", no step";
  if (one.on_thread) text += ", on a thread";
  return text + ", choice " + std::to_string(one.choice);
}

std::string RandomScript::text() const {
  std::string text = "script " + std::to_string(seed_) + ", layers";
  for (const std::size_t count : layers_) text += " " + std::to_string(count);
  text += has_noise_ ? ", with noise\n" : "\n";
  for (const Operation& one : operations_) text += in_words(one) + "\n";
  return text;
}

}  // namespace pudica::testing
