#include "torch/random_script_world.h"

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "pudica/torch.h"

namespace pudica::testing {
namespace {

constexpr std::size_t kMostAlive = 4;

// None; less than anything needs; about what a step needs above what is there.
Bytes budget(std::size_t choice) {
  if (choice % 3 == 0) return Bytes(0);
  if (choice % 3 == 1) return Bytes(1);
  const auto some = static_cast<std::int64_t>(choice / 3 % 16);
  return bytes_in_use(c10::Device(c10::DeviceType::CPU)) + Bytes(600 * some);
}

// Once, however often the function that holds it runs.
std::function<void()> once(std::function<void()> act) {
  return [act = std::move(act), done = std::make_shared<bool>(false)] {
    if (!std::exchange(*done, true)) act();
  };
}

}  // namespace

RandomScript::World::World(const RandomScript& script, How how) : script_(script), how_(how) {
  for (const std::size_t count : script.layers_) {
    ScriptModel model;
    model.fails_again = how == How::kFailingAgain;
    for (std::size_t i = 0; i < count; ++i) {
      model.layers.push_back(std::make_shared<ScriptLayer>());
      model.layers.back()->has_noise = script.has_noise_;
    }
    models_.push_back(std::move(model));
  }
  for (std::size_t i = 0; i < models_.size(); ++i) attach_model(i, script.seed_ + i);
}

void RandomScript::World::run(const Operation& one) {
  seen_.push_back(in_words(one));
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

RandomScript::Seen RandomScript::World::end() {
  for (const ScriptModel& model : models_) {
    for (const at::Tensor& one : model.parameters()) {
      seen_.push_back(bytes_of(one));
      seen_.push_back(bytes_of(one.grad()));
    }
    note_failures(model);
  }
  seen_.push_back(bytes_of(at::rand({1})));  // as many random numbers were drawn
  return std::move(seen_);
}

void RandomScript::World::attach_model(std::size_t index, std::size_t choice) {
  if (how_ == How::kPlainly) return;
  ScriptModel& model = models_[index];
  AttachOptions options;
  options.parameters = model.parameters();
  options.budget_bytes = budget(choice / 3);
  options.clock = operator_clock();
  if (choice % 3 != 0) options.policy = make_random_plans(choice);
  auto handle = attach(std::move(options));
  if (!handle) throw std::logic_error(handle.error().message);
  model.handle = std::move(*handle);
}

void RandomScript::World::note_failures(const ScriptModel& model) {
  if (model.handle && model.handle->failures() > 0) seen_.emplace_back("failures inside pudica");
}

const RandomScript::World::Alive* RandomScript::World::find(const Operation& one) const {
  return alive_.empty() ? nullptr : &alive_[one.tensor % alive_.size()];
}

at::Tensor RandomScript::World::input_of(const Operation& one) const {
  const Alive* const found = one.reads_tensor ? find(one) : nullptr;
  if (found == nullptr) return at::randn({one.rows, kScriptColumns});
  return one.detaches ? found->output.detach() : found->output;
}

std::size_t RandomScript::World::models_of_input(const Operation& one) const {
  const Alive* const found = one.reads_tensor && !one.detaches ? find(one) : nullptr;
  return found == nullptr ? 0 : found->models;
}

void RandomScript::World::hold(Alive made) {
  seen_.push_back(bytes_of(made.output));
  if (alive_.size() == kMostAlive) alive_.erase(alive_.begin());
  alive_.push_back(std::move(made));
}

void RandomScript::World::note_gradients() {
  for (const ScriptModel& model : models_) {
    for (const at::Tensor& one : model.parameters()) seen_.push_back(bytes_of(one.grad()));
  }
}

void RandomScript::World::forward(const Operation& one, ScriptForward how) {
  ScriptModel& model = models_[one.model];
  how.by_halves = one.by_halves;
  how.unproven = one.unproven;
  const at::Tensor input = input_of(one);
  Alive made;
  made.models = models_of_input(one) | std::size_t{1} << one.model;
  if (one.begins_step) model.begin_step(input);
  made.output = model.forward(input, how, &made.middle);
  hold(std::move(made));
}

void RandomScript::World::forward_that_throws(const Operation& one) {
  ScriptForward how;
  how.at = one.choice % models_[one.model].layers.size();
  how.inside_after = one.variant % 3 == 1;
  const auto fail = [] { throw std::runtime_error("a forward fails"); };
  (one.variant % 3 == 2 ? how.behind : how.inside) = fail;
  forward(one, how);
}

void RandomScript::World::forward_of_two(const Operation& one) {
  ScriptModel& left = models_[one.model];
  ScriptModel& right = models_[one.other];
  ScriptForward how;
  how.by_halves = one.by_halves;
  how.unproven = one.unproven;
  at::Tensor x = input_of(one);
  at::Tensor y = at::randn({one.rows + 1, kScriptColumns});
  Alive first{{}, x, models_of_input(one) | std::size_t{1} << one.model};
  Alive second{{}, y, std::size_t{1} << one.other};
  left.begin_step(x);
  right.begin_step(y);
  for (std::size_t i = 0; i < std::max(left.layers.size(), right.layers.size()); ++i) {
    if (i < left.layers.size()) first.middle = x = left.run_layer(i, x, how);
    if (i < right.layers.size()) second.middle = y = right.run_layer(i, y, how);
  }
  first.output = x;
  second.output = y;
  hold(std::move(first));
  hold(std::move(second));
}

// In each layer of the one, or as a part of its first layer's function, with gradients.
void RandomScript::World::forward_inside(const Operation& one) {
  ScriptModel& inner = models_[one.other];
  const bool begins = one.begins_step && one.model != one.other;
  if (one.model != one.other && one.variant % 2 == 0) {
    ScriptForward how;
    how.at = 0;
    how.term = [&inner, begins](const at::Tensor& given) {
      if (begins) inner.begin_step(given);
      return inner.forward(given);
    };
    forward(one, how);
    alive_.back().models |= std::size_t{1} << one.other;
    return;
  }
  ScriptModel& outer = models_[one.model];
  at::Tensor x = input_of(one);
  Alive made{{}, x, models_of_input(one)};
  // A recompute calls the inner model too.
  made.models |= std::size_t{1} << one.model | std::size_t{1} << one.other;
  outer.begin_step(x);
  for (std::size_t i = 0; i < outer.layers.size(); ++i) {
    ScriptForward how;
    how.at = i;
    how.inside = [&inner, given = x, begins] {
      const c10::AutoGradMode no_gradients(false);
      if (begins) inner.begin_step(given);
      static_cast<void>(inner.forward(given));
    };
    made.middle = x = outer.run_layer(i, x, how);
    if (one.model == one.other) break;
  }
  made.output = x;
  hold(std::move(made));
}

// What a callback of the user's may do in the middle of a forward or a backward. A layer draws the
// same numbers and saves the same tensors when it is run again: in it the callback, which is not
// run again, does neither.
void RandomScript::World::disturb(const Operation& one, bool in_layer) {
  constexpr std::array kWays{Kind::kBeginStep, Kind::kEndStep,       Kind::kSetBudget,
                             Kind::kDetach,    Kind::kAttachAnew,    Kind::kDropGraph,
                             Kind::kBackward,  Kind::kForwardNoGrad, Kind::kForward};
  Operation inner = one;
  inner.kind = kWays.at(one.choice % kWays.size());
  inner.model = one.other;
  inner.other = one.model;
  inner.tensor = one.tensor + 1;
  if (in_layer && inner.kind == Kind::kForward) inner.kind = Kind::kForwardNoGrad;
  if (in_layer && inner.kind == Kind::kForwardNoGrad && script_.has_noise_) return;
  const c10::AutoGradMode gradients(inner.kind != Kind::kForwardNoGrad);
  if (!in_layer || inner.kind != Kind::kBackward) return perform(inner);
  if (const Alive* const found = find(inner)) {
    torch::autograd::backward({found->output.sum()});
    note_gradients();
  }
}

void RandomScript::World::forward_disturbed(const Operation& one) {
  ScriptForward how;
  how.at = one.choice % models_[one.model].layers.size();
  how.inside_after = one.variant % 3 == 1;
  // Once: a callback is no part of the layer's function, and is not run again with it.
  const bool behind = one.variant % 3 == 2;
  (behind ? how.behind : how.inside) = once([this, one, behind] { disturb(one, !behind); });
  forward(one, how);
}

void RandomScript::World::backward_with(const Operation& one, std::function<void()> act) {
  if (alive_.empty()) return;
  const Alive& found = alive_[one.tensor % alive_.size()];
  const at::Tensor place = one.variant % 2 == 0 ? found.output : found.middle;
  if (!place.defined() || !place.requires_grad()) return;
  ++hooks_to_come_;
  const auto hook = once([this, act = std::move(act)] {
    --hooks_to_come_;
    act();
  });
  place.register_hook([hook](const at::Tensor&) {
    hook();
    return at::Tensor();
  });
  backward(one, /*retains=*/one.choice % 2 == 0);
}

void RandomScript::World::backward(const Operation& one, bool retains) {
  const Alive* const found = find(one);
  if (found == nullptr) return;
  std::vector<at::Tensor> losses{found->output.pow(2).mean()};
  if (one.kind == Kind::kBackwardOfTwo) losses.push_back(alive_.back().output.tanh().sum());
  torch::autograd::backward(losses, {}, retains);
  note_gradients();
}

void RandomScript::World::gradients(const Operation& one, bool twice) {
  const Alive* const found = find(one);
  if (found == nullptr) return;
  const std::vector<at::Tensor> parameters = models_[one.model].parameters();
  const at::Tensor loss = found->output.pow(2).mean();
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

// A layer promises the same values while its parameters are what they were: graphs that reach the
// model are dropped where what they give is compared.
void RandomScript::World::update(const Operation& one) {
  if (how_ != How::kFailingAgain) {
    std::erase_if(alive_, [&one](const Alive& it) { return (it.models >> one.model & 1U) != 0; });
  }
  const c10::AutoGradMode no_gradients(false);
  for (at::Tensor parameter : models_[one.model].parameters()) {
    if (!parameter.grad().defined()) continue;
    parameter.sub_(parameter.grad().clamp(-1, 1) * 1e-2);
    parameter.mutable_grad() = at::Tensor();
  }
}

void RandomScript::World::drop_graph(const Operation& one) {
  if (alive_.empty()) return;
  const auto place = static_cast<std::ptrdiff_t>(one.tensor % alive_.size());
  const Alive dropped = std::move(alive_[one.tensor % alive_.size()]);
  alive_.erase(alive_.begin() + place);
}

void RandomScript::World::perform(const Operation& one) {
  switch (one.kind) {
    case Kind::kForward:
    case Kind::kForwardThatThrows:
    case Kind::kForwardOfTwo:
    case Kind::kForwardInside:
    case Kind::kForwardDisturbed:
    case Kind::kForwardNoGrad:
      return perform_forward(one);
    case Kind::kBackward:
    case Kind::kBackwardRetaining:
    case Kind::kBackwardThatThrows:
    case Kind::kBackwardOfTwo:
    case Kind::kBackwardDisturbed:
    case Kind::kGradients:
    case Kind::kDoubleBackward:
      return perform_backward(one);
    case Kind::kOptimizerStep:
      return update(one);
    case Kind::kDropGraph:
      return drop_graph(one);
    case Kind::kClearGradients:
      for (at::Tensor parameter : models_[one.model].parameters()) {
        parameter.mutable_grad() = at::Tensor();
      }
      return;
    case Kind::kBothAtOnce:
    case Kind::kHandlesAtOnce:
    case Kind::kDropsAtOnce:
    case Kind::kBackwardAtOnce:
      return perform_at_once(one);
    default:
      return perform_on_handle(one, models_[one.model]);
  }
}

void RandomScript::World::perform_forward(const Operation& one) {
  if (one.kind == Kind::kForwardThatThrows) return forward_that_throws(one);
  if (one.kind == Kind::kForwardOfTwo) return forward_of_two(one);
  if (one.kind == Kind::kForwardInside) return forward_inside(one);
  if (one.kind == Kind::kForwardDisturbed) return forward_disturbed(one);
  const c10::AutoGradMode gradients(one.kind != Kind::kForwardNoGrad);
  forward(one);
}

void RandomScript::World::perform_backward(const Operation& one) {
  if (one.kind == Kind::kGradients) return gradients(one, /*twice=*/false);
  if (one.kind == Kind::kDoubleBackward) return gradients(one, /*twice=*/true);
  if (one.kind == Kind::kBackwardThatThrows) {
    return backward_with(one, [] { throw std::runtime_error("a backward fails"); });
  }
  if (one.kind == Kind::kBackwardDisturbed) {
    return backward_with(one, [this, one] { disturb(one, /*in_layer=*/false); });
  }
  backward(one, /*retains=*/one.kind == Kind::kBackwardRetaining);
}

void RandomScript::World::perform_on_handle(const Operation& one, ScriptModel& model) {
  if (one.kind == Kind::kAttachAnew) {
    if (model.in_forward > 0) return;  // a layer of it is running
    note_failures(model);
    model.handle.reset();
    return attach_model(one.model, one.choice);
  }
  if (!model.handle) return;
  if (one.kind == Kind::kBeginStep) model.handle->begin_step(ShapeKey{1, one.rows});
  if (one.kind == Kind::kEndStep) static_cast<void>(model.handle->end_step());
  if (one.kind == Kind::kSetBudget) model.handle->set_budget(budget(one.choice));
  if (one.kind == Kind::kDetach) model.handle->detach();
}

}  // namespace pudica::testing
