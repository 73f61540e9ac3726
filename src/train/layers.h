// The layers of the models: post-norm, as BERT's.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "train/options.h"

namespace pudica::train {

// Multi-head attention with its four projections. Flash: the fused kernel, whose memory is linear
// in the length, without dropout on the probabilities. Math: probabilities in memory, with dropout.
class AttentionBlock : public torch::nn::Module {
 public:
  explicit AttentionBlock(const ModelOptions& options);
  // `x` asks, `memory` answers; `mask` [batch, 1, 1, length of memory] hides its padding.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& memory, const at::Tensor& mask);

 private:
  [[nodiscard]] at::Tensor split_heads(const at::Tensor& tensor) const;

  std::int64_t heads_;
  double dropout_;
  Attention kind_;
  torch::nn::Linear q_, k_, v_, o_;
};

// Attention, then two dense layers with GELU; a residual and a LayerNorm round each.
class EncoderLayer : public torch::nn::Module {
 public:
  explicit EncoderLayer(const ModelOptions& options);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask);

 private:
  double dropout_;
  std::shared_ptr<AttentionBlock> attention_;
  torch::nn::Linear f1_, f2_;
  torch::nn::LayerNorm n1_, n2_;
};

// An encoder layer that also reads the encoder's output.
class DecoderLayer : public torch::nn::Module {
 public:
  explicit DecoderLayer(const ModelOptions& options);
  at::Tensor forward(const at::Tensor& y, const at::Tensor& mask, const at::Tensor& memory,
                     const at::Tensor& memory_mask);

 private:
  double dropout_;
  std::shared_ptr<AttentionBlock> self_;
  std::shared_ptr<AttentionBlock> cross_;
  torch::nn::Linear f1_, f2_;
  torch::nn::LayerNorm n1_, n2_, n3_;
};

}  // namespace pudica::train
