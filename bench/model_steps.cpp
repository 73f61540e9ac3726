#include "bench/model_steps.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <time.h>
#include <utility>

#include <ATen/Context.h>

namespace pudica::bench {

using train::TensorBatch;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::unique_ptr<Handle> attach_or_exit(AttachOptions options) {
  auto handle = attach(std::move(options));
  if (handle) return std::move(*handle);
  std::fprintf(stderr, "cannot attach: %s\n", handle.error().message.c_str());
  std::exit(1);
}

TensorBatch random_batch(std::int64_t batch, std::int64_t length, std::uint64_t seed) {
  train::Random random(seed);
  train::TokenBatch tokens;
  tokens.batch = batch;
  tokens.lengths = {length, 0};
  for (std::int64_t i = 0; i < batch * length; ++i) {
    tokens.ids[0].push_back(static_cast<std::int64_t>(random.below(255)));
  }
  tokens.valid[0].assign(static_cast<std::size_t>(batch), length);
  for (std::int64_t i = 0; i < batch * length / 8; ++i) {
    tokens.positions.push_back(8 * i);
    tokens.labels.push_back(static_cast<std::int64_t>(random.below(255)));
  }
  return train::to_tensors(tokens, c10::Device(c10::kCPU));
}

ModelSteps::ModelSteps(std::int64_t longest, std::uint64_t seed) {
  train::ModelOptions options;
  options.vocab = 256;
  at::manual_seed(seed);
  model_ = train::make_model(options, {.source_length = longest}, c10::Device(c10::kCPU));
}

double ModelSteps::step(Handle* handle, const TensorBatch& batch) {
  for (auto& parameter : model_->parameters()) parameter.mutable_grad() = at::Tensor();
  const double begin = cpu_seconds();
  if (handle == nullptr) {
    model_->loss(batch, train::plain_runner()).backward();
  } else {
    handle->begin_step({batch.source_ids.size(0), batch.source_ids.size(1)});
    model_
        ->loss(batch,
               [handle](std::int64_t index, const LayerFunction& function,
                        std::vector<at::Tensor> inputs, const std::string& layer_class) {
                 return handle->layer(index, function, std::move(inputs), {layer_class, {}});
               })
        .backward();
    handle->end_step();
  }
  return cpu_seconds() - begin;
}

}  // namespace pudica::bench
