#include "torch/random_model.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "torch/toy_model.h"

namespace pudica::testing {
namespace {

constexpr std::size_t kMicroBatches = 40;
constexpr std::int64_t kColumns = RandomLayer::kColumns;
constexpr double kLearningRate = 1e-3;

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().contiguous();
  return {static_cast<const char*>(values.const_data_ptr()), values.nbytes()};
}

// An exception leaves parts of the graph in the queue of the thread, until its next backward.
void forget_dead_graphs() {
  const at::Tensor one = at::ones({1}).set_requires_grad(true);
  torch::autograd::backward({one * 2});
}

}  // namespace

struct RandomModel::Trainee {
  Trainee() = default;
  // What a model leaves behind would be part of the next one's budget. A gradient that has a graph
  // of its own holds its parameter.
  ~Trainee() {
    handle.reset();
    for (at::Tensor parameter : parameters) parameter.mutable_grad() = at::Tensor();
    held.clear();
    forget_dead_graphs();
  }
  Trainee(const Trainee&) = delete;
  Trainee& operator=(const Trainee&) = delete;

  std::vector<std::shared_ptr<RandomLayer>> layers;
  at::Tensor embedding;
  at::Tensor head;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> momenta;  // from the first step on
  std::vector<at::Tensor> held;
  std::unique_ptr<Handle> handle;
  Run run;
};

std::size_t RandomModel::pick(std::size_t count) {
  return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
}

RandomModel::RandomModel(std::uint64_t seed) : seed_(seed), random_(seed) {
  const std::size_t classes = 1 + pick(3);
  for (std::size_t i = 0; i < classes; ++i) class_seeds_.push_back(random_());
  const std::size_t layers = 3 + pick(6);
  const bool in_turn = pick(2) == 0;
  for (std::size_t i = 0; i < layers; ++i) {
    layer_classes_.push_back(in_turn ? i % classes : pick(classes));
  }
  deviant_ = pick(4) == 0 ? pick(layers) : layers;
  const std::size_t distinct = std::vector<std::size_t>{1, 3, 8, 60}[pick(4)];
  const std::int64_t shortest = 4 + static_cast<std::int64_t>(pick(60));
  std::vector<std::int64_t> choice;
  for (std::size_t i = 0; i < distinct; ++i) {
    choice.push_back(shortest + static_cast<std::int64_t>(pick(150)));
  }
  for (std::size_t i = 0; i < kMicroBatches; ++i) rows_.push_back(choice[pick(distinct)]);
  if (pick(5) == 0) std::sort(rows_.begin(), rows_.end());
  accumulated_ = pick(3) == 0 ? 2 : 1;
  habits_.holds_outputs = is_one_in(3);
  habits_.zeroes_gradients = is_one_in(3);
  habits_.autocast = is_one_in(4);
  habits_.has_momentum = is_one_in(2);
  habits_.skips_layers = is_one_in(6);
  habits_.evaluates = is_one_in(5);
  habits_.fails = is_one_in(6);
  habits_.of_gradient = is_one_in(10);
  habits_.ties = is_one_in(6);
  habits_.steps_outside = is_one_in(3);
  if (habits_.ties) layer_classes_.back() = layer_classes_.front();
}

std::string RandomModel::text() const {
  std::string text = "model " + std::to_string(seed_) + ", layers";
  for (std::size_t i = 0; i < layer_classes_.size(); ++i) {
    text += " " + std::to_string(layer_classes_[i]) + (i == deviant_ ? "!" : "");
  }
  text += ", rows";
  for (const std::int64_t rows : rows_) text += " " + std::to_string(rows);
  text += ", " + std::to_string(accumulated_) + " a step";
  if (habits_.holds_outputs) text += ", outputs held";
  if (habits_.zeroes_gradients) text += ", gradients zeroed";
  if (habits_.autocast) text += ", autocast";
  if (habits_.has_momentum) text += ", momentum";
  if (habits_.skips_layers) text += ", layers skipped";
  if (habits_.evaluates) text += ", evaluation";
  if (habits_.fails) text += ", failing forwards";
  if (habits_.of_gradient) text += ", loss of a gradient";
  if (habits_.ties) text += ", last layer tied to the first";
  if (habits_.steps_outside) text += ", optimizer after the step";
  for (std::size_t i = 0; i < class_seeds_.size(); ++i) {
    text += "\nclass " + std::to_string(i) + ":\n" + RandomLayer(class_seeds_[i]).text();
  }
  return text;
}

RandomModel::Run RandomModel::train(std::optional<AttachOptions> options) const {
  at::manual_seed(seed_);
  Trainee trainee;
  for (const std::size_t one : layer_classes_) {
    trainee.layers.push_back(std::make_shared<RandomLayer>(class_seeds_[one]));
  }
  if (habits_.ties) trainee.layers.back() = trainee.layers.front();
  trainee.embedding = (at::randn({kColumns, kColumns}) / 6.).set_requires_grad(true);
  trainee.head = (at::randn({4 * kColumns, kColumns}) / 6.).set_requires_grad(true);
  trainee.parameters = {trainee.embedding, trainee.head};
  for (const auto& layer : trainee.layers) {
    for (const at::Tensor& one : layer->parameters()) trainee.parameters.push_back(one);
  }
  if (options) {
    options->parameters = trainee.parameters;
    auto handle = attach(std::move(*options));
    if (!handle) throw std::runtime_error(handle.error().message);
    trainee.handle = std::move(*handle);
  }
  for (std::size_t i = 0; i < rows_.size(); ++i) step(trainee, i);
  if (trainee.handle) trainee.run.failures = trainee.handle->failures();
  for (const at::Tensor& one : trainee.parameters) {
    trainee.run.parameters.push_back(bytes_of(one));
  }
  return std::move(trainee.run);
}

bool RandomModel::is_skipped(std::size_t number, std::size_t layer) const {
  return habits_.skips_layers && (seed_ + 7 * number + 3 * layer) * 2654435761U % 97 < 15;
}

std::vector<at::Tensor> RandomModel::forward(Trainee& trainee, std::size_t number,
                                             std::int64_t rows, std::size_t throws_at) const {
  const at::Tensor input = at::randn({rows, kColumns});
  const at::Tensor embedded = at::linear(input, trainee.embedding);
  std::vector<at::Tensor> x{embedded, embedded.sin()};
  for (std::size_t i = 0; i < trainee.layers.size(); ++i) {
    if (is_skipped(number, i)) continue;
    const std::uint64_t variation = i == deviant_ ? seed_ + 1 : RandomLayer::kAsEver;
    const LayerFunction function = [layer = trainee.layers[i], variation,
                                    throws = i == throws_at](const auto& inputs) {
      auto outputs = layer->forward(inputs, variation);
      if (throws) throw std::runtime_error("a layer fails");
      return outputs;
    };
    const LayerOptions options{.layer_class = "class " + std::to_string(layer_classes_[i])};
    x = trainee.handle ? trainee.handle->layer(static_cast<std::int64_t>(i), function, x, options)
                       : function(x);
  }
  return x;
}

at::Tensor RandomModel::loss(Trainee& trainee, std::size_t number) const {
  const Autocast autocast(habits_.autocast);
  const std::vector<at::Tensor> x = forward(trainee, number, rows_[number], trainee.layers.size());
  const at::Tensor logits = at::log_softmax(at::linear(x[0], trainee.head).to(at::kFloat), -1);
  at::Tensor loss = x[1].to(at::kFloat).tanh().mean() - logits.select(-1, 0).mean();
  if (habits_.of_gradient) {
    const auto gradients = torch::autograd::grad({loss}, {trainee.embedding}, {}, true, true);
    loss = loss + gradients[0].pow(2).sum();
  }
  if (habits_.holds_outputs) trainee.held = {logits, loss};
  return loss;
}

// Forwards that lead to no backward.
void RandomModel::differ_from_training(Trainee& trainee, std::size_t number) const {
  if (habits_.evaluates && number % 5 == 3) {
    const c10::AutoGradMode no_gradients(false);
    static_cast<void>(forward(trainee, number, rows_[number] / 3 + 4, trainee.layers.size()));
  }
  if (!habits_.fails || number % 7 != 4) return;
  if (trainee.handle) trainee.handle->begin_step(ShapeKey{1, rows_[number]});
  try {
    static_cast<void>(forward(trainee, number, rows_[number], number % trainee.layers.size()));
  } catch (const std::runtime_error&) {
  }
}

void RandomModel::step(Trainee& trainee, std::size_t number) const {
  differ_from_training(trainee, number);
  if (trainee.handle) trainee.handle->begin_step(ShapeKey{1, rows_[number]});
  at::manual_seed(seed_ + number);
  {
    const at::Tensor one = loss(trainee, number);
    torch::autograd::backward({one});
    trainee.run.losses.push_back(bytes_of(one));
  }
  const bool updates = (number + 1) % accumulated_ == 0;
  if (updates && !habits_.steps_outside) update(trainee);
  if (trainee.handle) trainee.run.steps.push_back(trainee.handle->end_step());
  if (updates && habits_.steps_outside) update(trainee);
}

void RandomModel::update(Trainee& trainee) const {
  const c10::AutoGradMode no_gradients(false);
  if (habits_.has_momentum && trainee.momenta.empty()) {
    for (const at::Tensor& one : trainee.parameters) {
      trainee.momenta.push_back(at::zeros_like(one));
    }
  }
  for (std::size_t i = 0; i < trainee.parameters.size(); ++i) {
    at::Tensor parameter = trainee.parameters[i];
    if (!parameter.grad().defined()) continue;
    at::Tensor change = parameter.grad().nan_to_num(0, 1, -1).clamp(-1, 1);
    if (habits_.has_momentum) change = trainee.momenta[i].mul_(.9).add_(change);
    parameter.sub_(change * kLearningRate);
  }
  for (at::Tensor parameter : trainee.parameters) {
    if (!habits_.zeroes_gradients) {
      parameter.mutable_grad() = at::Tensor();
    } else if (parameter.grad().defined()) {
      parameter.mutable_grad().zero_();
    }
  }
}

}  // namespace pudica::testing
