#include "train/layers.h"

#include <cmath>

#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

namespace pudica::train {
namespace {

constexpr double kNormEpsilon = 1e-12;  // BERT's

torch::nn::LayerNorm make_norm(const ModelOptions& options) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.hidden}).eps(kNormEpsilon));
}

at::Tensor drop(const at::Tensor& tensor, double probability) {
  return at::dropout(tensor, probability, /*train=*/true);
}

}  // namespace

AttentionBlock::AttentionBlock(const ModelOptions& options)
    : heads_(options.heads),
      dropout_(options.dropout),
      kind_(options.attention),
      q_(register_module("q", torch::nn::Linear(options.hidden, options.hidden))),
      k_(register_module("k", torch::nn::Linear(options.hidden, options.hidden))),
      v_(register_module("v", torch::nn::Linear(options.hidden, options.hidden))),
      o_(register_module("o", torch::nn::Linear(options.hidden, options.hidden))) {}

at::Tensor AttentionBlock::split_heads(const at::Tensor& tensor) const {
  const auto width = tensor.size(2) / heads_;
  return tensor.view({tensor.size(0), tensor.size(1), heads_, width}).transpose(1, 2);
}

at::Tensor AttentionBlock::forward(const at::Tensor& x, const at::Tensor& memory,
                                   const at::Tensor& mask) {
  const auto query = split_heads(q_(x));
  const auto key = split_heads(k_(memory));
  const auto value = split_heads(v_(memory));
  at::Tensor mixed;
  if (kind_ == Attention::kFlash) {
    mixed = at::scaled_dot_product_attention(query, key, value, mask);
  } else {
    const auto scale = 1.0 / std::sqrt(static_cast<double>(query.size(3)));
    const auto scores = at::matmul(query * scale, key.transpose(-1, -2)) + mask;
    mixed = at::matmul(drop(at::softmax(scores, -1), dropout_), value);
  }
  return o_(mixed.transpose(1, 2).reshape({x.size(0), x.size(1), x.size(2)}));
}

EncoderLayer::EncoderLayer(const ModelOptions& options)
    : dropout_(options.dropout),
      attention_(register_module("attention", std::make_shared<AttentionBlock>(options))),
      f1_(register_module("f1", torch::nn::Linear(options.hidden, 4 * options.hidden))),
      f2_(register_module("f2", torch::nn::Linear(4 * options.hidden, options.hidden))),
      n1_(register_module("n1", make_norm(options))),
      n2_(register_module("n2", make_norm(options))) {}

at::Tensor EncoderLayer::forward(const at::Tensor& x, const at::Tensor& mask) {
  const auto attended = n1_(x + drop(attention_->forward(x, x, mask), dropout_));
  return n2_(attended + drop(f2_(at::gelu(f1_(attended))), dropout_));
}

DecoderLayer::DecoderLayer(const ModelOptions& options)
    : dropout_(options.dropout),
      self_(register_module("self", std::make_shared<AttentionBlock>(options))),
      cross_(register_module("cross", std::make_shared<AttentionBlock>(options))),
      f1_(register_module("f1", torch::nn::Linear(options.hidden, 4 * options.hidden))),
      f2_(register_module("f2", torch::nn::Linear(4 * options.hidden, options.hidden))),
      n1_(register_module("n1", make_norm(options))),
      n2_(register_module("n2", make_norm(options))),
      n3_(register_module("n3", make_norm(options))) {}

at::Tensor DecoderLayer::forward(const at::Tensor& y, const at::Tensor& mask,
                                 const at::Tensor& memory, const at::Tensor& memory_mask) {
  const auto attended = n1_(y + drop(self_->forward(y, y, mask), dropout_));
  const auto crossed =
      n2_(attended + drop(cross_->forward(attended, memory, memory_mask), dropout_));
  return n3_(crossed + drop(f2_(at::gelu(f1_(crossed))), dropout_));
}

}  // namespace pudica::train
