// Goal: the models are right in shape, learn, and go through the runner in order. Sizes are small.
#include "train/model.h"

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/optim/adamw.h>

#include "train/data.h"

namespace pudica::train {
namespace {

ModelOptions tiny_options() {
  ModelOptions options;
  options.layers = 2;
  options.hidden = 32;
  options.heads = 2;
  options.vocab = 256;
  return options;
}

void seed_torch(std::uint64_t seed) {
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(seed);
}

struct Job {
  Dataset data;
  std::vector<Batch> batches;
  std::unique_ptr<Model> model;
};

Job make_job(Dataset data, const ModelOptions& options, std::int64_t batch) {
  seed_torch(1);
  Job job{std::move(data), {}, nullptr};
  job.batches = make_batches(job.data, {.batch = batch, .steps = 60, .seed = 1});
  const ModelDimensions dimensions{
      job.data.longest(0), job.data.dimensions == 2 ? job.data.longest(1) : std::int64_t{0}};
  job.model = make_model(options, dimensions, at::kCPU);
  return job;
}

Job text_job(const ModelOptions& options, std::int64_t max_length, std::int64_t batch) {
  return make_job(*load_data({DataKind::kText, default_text_path(), {}}, max_length), options,
                  batch);
}

Job pair_job(const ModelOptions& options) {
  return make_job(*parse_lengths("src_len,tgt_len\n9,5\n7,6\n12,4\n", {}, 0), options, 2);
}

TensorBatch tensors_of(const Job& job, std::size_t step) {
  return to_tensors(make_tokens(job.data, job.batches[step], 256, Random(1, step)), at::kCPU);
}

std::string graph_of(const at::Tensor& tensor) {
  std::vector<torch::autograd::Node*> open = {tensor.grad_fn().get()};
  std::string names;
  while (!open.empty() && names.size() < 100000) {
    auto* node = open.back();
    open.pop_back();
    names += node->name() + "\n";
    for (const auto& edge : node->next_edges()) {
      if (edge.function) open.push_back(edge.function.get());
    }
  }
  return names;
}

TEST(TrainModel, LossFallsOnText) {
  auto job = text_job(tiny_options(), 64, 8);
  torch::optim::AdamW optimizer(job.model->parameters(),
                                torch::optim::AdamWOptions(learning_rate(tiny_options())));
  double first = 0;
  double last = 0;
  for (std::size_t step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    const auto loss = job.model->loss(tensors_of(job, step), plain_runner());
    loss.backward();
    optimizer.step();
    (step < 5 ? first : last) += step < 5 || step >= 55 ? loss.item<double>() / 5 : 0;
  }
  EXPECT_NEAR(first, std::log(256.0), 0.6) << "untrained: near uniform";
  EXPECT_LT(last, first - 1);
}

TEST(TrainModel, EveryParameterGetsAGradient) {
  for (const bool paired : {false, true}) {
    for (const auto attention : {Attention::kFlash, Attention::kMath}) {
      auto options = tiny_options();
      options.attention = attention;
      auto job = paired ? pair_job(options) : text_job(options, 32, 2);
      const auto loss = job.model->loss(tensors_of(job, 0), plain_runner());
      EXPECT_EQ(loss.dim(), 0);
      EXPECT_TRUE(std::isfinite(loss.item<double>()));
      loss.backward();
      for (const auto& parameter : job.model->parameters()) {
        ASSERT_TRUE(parameter.grad().defined());
        EXPECT_TRUE(parameter.grad().isfinite().all().item<bool>());
      }
    }
  }
}

TEST(TrainModel, RunsItsLayersInOrderWithEverythingAsInput) {
  auto options = tiny_options();
  options.layers = 5;
  auto job = pair_job(options);
  std::vector<std::string> seen;
  const LayerRunner runner = [&seen](std::int64_t index, const LayerFunction& function,
                                     std::vector<at::Tensor> inputs, const std::string& name) {
    EXPECT_EQ(index, std::ssize(seen));
    seen.push_back(name);
    // The function outlives the call, and gives the same again without dropout's dice.
    seed_torch(5);
    const auto outputs = function(inputs);
    seed_torch(5);
    EXPECT_TRUE(at::equal(function(inputs)[0], outputs[0]));
    EXPECT_EQ(outputs[0].sizes(), inputs[0].sizes());
    EXPECT_EQ(inputs.size(), name == "encoder" ? 2U : 4U);
    return outputs;
  };
  job.model->loss(tensors_of(job, 0), runner);
  EXPECT_EQ(seen,
            (std::vector<std::string>{"encoder", "encoder", "decoder", "decoder", "decoder"}));
  EXPECT_EQ(job.model->layers(), 5);
}

TEST(TrainModel, FlashTakesTheFusedKernelAndMathDoesNot) {
  for (const auto attention : {Attention::kFlash, Attention::kMath}) {
    auto options = tiny_options();
    options.attention = attention;
    auto job = text_job(options, 48, 3);
    const auto graph = graph_of(job.model->loss(tensors_of(job, 0), plain_runner()));
    EXPECT_EQ(graph.find("FlashAttention") != std::string::npos, attention == Attention::kFlash);
    // The loss has a LogSoftmax of its own.
    EXPECT_EQ(graph.find("\nSoftmaxBackward0") != std::string::npos, attention == Attention::kMath);
  }
}

TEST(TrainModel, FlashAndMathAgreeWithoutDropout) {
  std::vector<double> losses;
  for (const auto attention : {Attention::kFlash, Attention::kMath}) {
    auto options = tiny_options();
    options.attention = attention;
    options.dropout = 0;
    auto job = text_job(options, 48, 3);
    losses.push_back(job.model->loss(tensors_of(job, 0), plain_runner()).item<double>());
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-4);
}

TEST(TrainModel, PaddingDoesNotReachTheLoss) {
  auto options = tiny_options();
  options.dropout = 0;
  for (const auto attention : {Attention::kFlash, Attention::kMath}) {
    options.attention = attention;
    auto job = make_job(*parse_text("abcdefghijklmnop\nxyz\n", 0), options, 2);
    auto tokens = make_tokens(job.data, job.batches[0], 256, Random(1));
    const auto with_zeros =
        job.model->loss(to_tensors(tokens, at::kCPU), plain_runner()).item<double>();
    for (std::int64_t row = 0; row < tokens.batch; ++row) {
      for (auto i = tokens.valid[0][row]; i < tokens.lengths[0]; ++i) {
        tokens.ids[0][row * tokens.lengths[0] + i] = 77;
      }
    }
    const auto with_noise =
        job.model->loss(to_tensors(tokens, at::kCPU), plain_runner()).item<double>();
    EXPECT_NEAR(with_zeros, with_noise, 1e-6);
  }
}

TEST(TrainModel, Bfloat16CastsInsideAndLeavesNoTrace) {
  auto options = tiny_options();
  options.dtype = Dtype::kBfloat16;
  auto job = text_job(options, 32, 2);
  bool cast = false;
  const LayerRunner runner = [&cast](std::int64_t, const LayerFunction& function,
                                     std::vector<at::Tensor> inputs, const std::string&) {
    cast = at::autocast::is_autocast_enabled(at::kCPU) &&
           at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16;
    return function(inputs);
  };
  const auto loss = job.model->loss(tensors_of(job, 0), runner);
  EXPECT_TRUE(cast);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_TRUE(std::isfinite(loss.item<double>()));
  loss.backward();
  for (const auto& parameter : job.model->parameters()) {
    EXPECT_EQ(parameter.scalar_type(), at::kFloat);
  }
  const LayerRunner throwing = [](std::int64_t, const LayerFunction&, std::vector<at::Tensor>,
                                  const std::string&) -> std::vector<at::Tensor> {
    throw std::runtime_error("layer");
  };
  EXPECT_THROW(job.model->loss(tensors_of(job, 0), throwing), std::runtime_error);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(TrainModel, MakingABatchLeavesTheDefaultGeneratorAlone) {
  auto job = pair_job(tiny_options());
  const auto state = at::detail::getDefaultCPUGenerator().get_state();
  tensors_of(job, 0);
  EXPECT_TRUE(at::equal(state, at::detail::getDefaultCPUGenerator().get_state()));
}

TEST(ParamsSha256, NamesValuesAndOrder) {
  const auto first = text_job(tiny_options(), 32, 2);
  const auto second = text_job(tiny_options(), 32, 2);
  auto parameters = first.model->parameters();
  const auto digest = params_sha256(parameters);
  EXPECT_EQ(digest.size(), 64U);
  EXPECT_EQ(digest, params_sha256(second.model->parameters())) << "the seed fixes them";
  const auto bytes = at::arange(3, at::kByte) + 'a';
  EXPECT_EQ(params_sha256({bytes}),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  {
    const at::NoGradGuard no_grad;
    parameters[0].view({-1})[0] += 1;
  }
  EXPECT_NE(digest, params_sha256(parameters));
}

}  // namespace
}  // namespace pudica::train
