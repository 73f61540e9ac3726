// Steps of the demo's model for benchmarks: forward and backward, with a handle or without one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pudica/torch.h"
#include "train/model.h"

namespace pudica::bench {

// CPU time of this process.
double cpu_seconds();

// A handle, or exit code 1 with the reason on stderr.
std::unique_ptr<Handle> attach_or_exit(AttachOptions options);

// One batch of random tokens.
train::TensorBatch random_batch(std::int64_t batch, std::int64_t length, std::uint64_t seed);

// The model with its defaults (8 layers, hidden 128), dropout on. Not thread-safe.
class ModelSteps {
 public:
  ModelSteps(std::int64_t longest, std::uint64_t seed);

  // One forward and backward, gradients made anew; `handle` may be null. Seconds of CPU time, of
  // which begin_step and end_step are a part.
  double step(Handle* handle, const train::TensorBatch& batch);
  [[nodiscard]] std::vector<at::Tensor> parameters() const { return model_->parameters(); }

 private:
  std::unique_ptr<train::Model> model_;
};

}  // namespace pudica::bench
