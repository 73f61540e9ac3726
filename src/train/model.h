// The models that pudica-train trains: a BERT-like encoder, or an encoder-decoder chain for data of
// two lengths. Every layer runs through a LayerRunner, so that a plan can be applied to it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "pudica/torch.h"
#include "train/data.h"
#include "train/options.h"

namespace pudica::train {

// Runs layer `index` of a chain (as Handle::layer does). The function captures what it needs by
// value and takes every tensor but its parameters as an input.
using LayerRunner = std::function<std::vector<at::Tensor>(
    std::int64_t index, const LayerFunction& function, std::vector<at::Tensor> inputs,
    const std::string& layer_class)>;

// Just calls the function.
LayerRunner plain_runner();

// A TokenBatch on a device. Masks are additive, [batch, 1, 1, length]: 0, or -infinity on padding.
struct TensorBatch {
  at::Tensor source_ids;  // [batch, source], int64
  at::Tensor source_mask;
  at::Tensor target_ids;  // undefined with one length
  at::Tensor target_mask;
  at::Tensor positions;  // [predictions], int64, into the predicted side, flat
  at::Tensor labels;     // [predictions], int64
};

TensorBatch to_tensors(const TokenBatch& tokens, c10::Device device);

// What a model is built for, beside its options.
struct ModelDimensions {
  std::int64_t source_length = 1;  // the longest
  std::int64_t target_length = 0;  // the longest; 0: one length
};

// Not thread-safe.
class Model {
 public:
  virtual ~Model() = default;

  // Masked-token loss, a scalar that requires gradients. Under autocast where the options ask for
  // bfloat16; its state is put back at the end, and its cache emptied.
  virtual at::Tensor loss(const TensorBatch& batch, const LayerRunner& run) = 0;
  [[nodiscard]] virtual std::vector<at::Tensor> parameters() const = 0;
  // Layers of the chain, in execution order.
  [[nodiscard]] virtual std::int64_t layers() const = 0;
};

// Parameters come from torch's default generator: seed it first. Dropout is on.
std::unique_ptr<Model> make_model(const ModelOptions& options, const ModelDimensions& dimensions,
                                  c10::Device device);

// A rate for AdamW at which models of this size learn without a schedule.
double learning_rate(const ModelOptions& options);

// SHA-256 over the parameters' bytes in order, 64 hexadecimal digits.
std::string params_sha256(const std::vector<at::Tensor>& parameters);

}  // namespace pudica::train
