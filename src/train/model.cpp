#include "train/model.h"

#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "train/layers.h"
#include "train/sha256.h"

namespace pudica::train {
namespace {

using at::Tensor;

constexpr double kEmbeddingDeviation = 0.02;  // BERT's initialisation
constexpr double kNormEpsilon = 1e-12;

// bfloat16 autocast for a scope. The cache of cast weights is emptied at the end, as nothing else
// would free it before the next step.
class AutocastGuard {
 public:
  AutocastGuard(at::DeviceType device, bool wanted)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        old_dtype_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(device_, wanted);
    if (wanted) at::autocast::set_autocast_dtype(device_, at::kBFloat16);
  }
  ~AutocastGuard() {
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, old_dtype_);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_;
  at::ScalarType old_dtype_;
};

// Words and positions, normalised.
class EmbeddingBlock : public torch::nn::Module {
 public:
  EmbeddingBlock(const ModelOptions& options, std::int64_t longest)
      : dropout_(options.dropout),
        words_(register_module("words", torch::nn::Embedding(options.vocab, options.hidden))),
        positions_(register_module("positions", torch::nn::Embedding(longest, options.hidden))),
        norm_(register_module(
            "norm", torch::nn::LayerNorm(
                        torch::nn::LayerNormOptions({options.hidden}).eps(kNormEpsilon)))) {
    const c10::NoGradGuard no_grad;
    words_->weight.normal_(0, kEmbeddingDeviation);
    positions_->weight.normal_(0, kEmbeddingDeviation);
  }

  Tensor forward(const Tensor& ids) {
    const auto places = at::arange(ids.size(1), ids.options());
    return at::dropout(norm_(words_(ids) + positions_(places)), dropout_, /*train=*/true);
  }

 private:
  double dropout_;
  torch::nn::Embedding words_, positions_;
  torch::nn::LayerNorm norm_;
};

class ChainModel final : public Model, public torch::nn::Module {
 public:
  ChainModel(const ModelOptions& options, const ModelDimensions& dimensions)
      : options_(options),
        source_(register_module(
            "source", std::make_shared<EmbeddingBlock>(options, dimensions.source_length))),
        head_(register_module("head", torch::nn::Linear(options.hidden, options.vocab))) {
    const bool paired = dimensions.target_length > 0;
    const auto encoders = paired ? options.layers / 2 : options.layers;
    for (std::int64_t i = 0; i < encoders; ++i) {
      encoders_.push_back(
          register_module("encoder" + std::to_string(i), std::make_shared<EncoderLayer>(options)));
    }
    if (!paired) return;
    target_ = register_module("target",
                              std::make_shared<EmbeddingBlock>(options, dimensions.target_length));
    for (std::int64_t i = encoders; i < options.layers; ++i) {
      decoders_.push_back(
          register_module("decoder" + std::to_string(i), std::make_shared<DecoderLayer>(options)));
    }
  }

  Tensor loss(const TensorBatch& batch, const LayerRunner& run) override {
    const AutocastGuard autocast(batch.source_ids.device().type(),
                                 options_.dtype == Dtype::kBfloat16);
    const auto hidden = forward(batch, run);
    // Only the masked tokens go through the head: its memory would dwarf the layers' otherwise.
    const auto rows = hidden.reshape({-1, options_.hidden}).index_select(0, batch.positions);
    return at::cross_entropy_loss(head_(rows), batch.labels, {}, at::Reduction::Mean,
                                  TokenBatch::kIgnored);
  }

  [[nodiscard]] std::vector<Tensor> parameters() const override {
    return torch::nn::Module::parameters();
  }
  [[nodiscard]] std::int64_t layers() const override { return options_.layers; }

 private:
  Tensor forward(const TensorBatch& batch, const LayerRunner& run) {
    auto memory = source_->forward(batch.source_ids);
    std::int64_t index = 0;
    for (const auto& layer : encoders_) {
      memory = run(
          index++,
          [layer](const std::vector<Tensor>& inputs) {
            return std::vector<Tensor>{layer->forward(inputs[0], inputs[1])};
          },
          {memory, batch.source_mask}, "encoder")[0];
    }
    if (decoders_.empty()) return memory;
    auto hidden = target_->forward(batch.target_ids);
    for (const auto& layer : decoders_) {
      hidden = run(
          index++,
          [layer](const std::vector<Tensor>& inputs) {
            return std::vector<Tensor>{layer->forward(inputs[0], inputs[1], inputs[2], inputs[3])};
          },
          {hidden, batch.target_mask, memory, batch.source_mask}, "decoder")[0];
    }
    return hidden;
  }

  ModelOptions options_;
  std::shared_ptr<EmbeddingBlock> source_;
  std::shared_ptr<EmbeddingBlock> target_;  // null with one length
  std::vector<std::shared_ptr<EncoderLayer>> encoders_;
  std::vector<std::shared_ptr<DecoderLayer>> decoders_;
  torch::nn::Linear head_;
};

Tensor to_tensor(const std::vector<std::int64_t>& values, c10::IntArrayRef sizes) {
  auto* data = const_cast<std::int64_t*>(values.data());  // from_blob takes no const; copied below
  return at::from_blob(data, sizes, at::kLong).clone();
}

// [batch, 1, 1, length]: 0 on the valid tokens, -infinity on padding.
Tensor make_mask(const std::vector<std::int64_t>& valid, std::int64_t length) {
  const auto batch = static_cast<std::int64_t>(valid.size());
  auto mask = at::zeros({batch, 1, 1, length}, at::kFloat);
  auto* cell = mask.data_ptr<float>();
  for (const auto count : valid) {
    for (std::int64_t i = 0; i < length; ++i, ++cell) {
      if (i >= count) *cell = -std::numeric_limits<float>::infinity();
    }
  }
  return mask;
}

}  // namespace

LayerRunner plain_runner() {
  return [](std::int64_t, const LayerFunction& function, const std::vector<Tensor>& inputs,
            const std::string&) { return function(inputs); };
}

TensorBatch to_tensors(const TokenBatch& tokens, c10::Device device) {
  const auto predictions = static_cast<std::int64_t>(tokens.positions.size());
  TensorBatch batch;
  batch.source_ids = to_tensor(tokens.ids[0], {tokens.batch, tokens.lengths[0]}).to(device);
  batch.source_mask = make_mask(tokens.valid[0], tokens.lengths[0]).to(device);
  if (tokens.lengths[1] > 0) {
    batch.target_ids = to_tensor(tokens.ids[1], {tokens.batch, tokens.lengths[1]}).to(device);
    batch.target_mask = make_mask(tokens.valid[1], tokens.lengths[1]).to(device);
  }
  batch.positions = to_tensor(tokens.positions, {predictions}).to(device);
  batch.labels = to_tensor(tokens.labels, {predictions}).to(device);
  return batch;
}

std::unique_ptr<Model> make_model(const ModelOptions& options, const ModelDimensions& dimensions,
                                  c10::Device device) {
  auto model = std::make_unique<ChainModel>(options, dimensions);
  model->to(device);
  return model;
}

double learning_rate(const ModelOptions& options) { return options.hidden <= 256 ? 1e-3 : 1e-4; }

std::string params_sha256(const std::vector<at::Tensor>& parameters) {
  Sha256 digest;
  for (const auto& parameter : parameters) {
    const auto bytes = parameter.detach().cpu().contiguous();
    digest.update({static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()});
  }
  return digest.hex_digest();
}

}  // namespace pudica::train
