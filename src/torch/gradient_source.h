// GradientSource: where in the graph a tensor comes from.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pudica::hooks {

// A node of the graph, and which of its outputs. Told apart, never followed.
using GradientSource = std::pair<const void*, std::int64_t>;

inline GradientSource source_of(const at::Tensor& tensor) {
  return {tensor.grad_fn().get(), tensor.output_nr()};
}

// Of all tensors that a gradient will flow through, but for leaves.
inline std::vector<GradientSource> sources_of(const std::vector<at::Tensor>& tensors) {
  std::vector<GradientSource> sources;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.requires_grad() || tensor.is_leaf()) continue;
    sources.push_back(source_of(tensor));
  }
  return sources;
}

// The first tensor a gradient will flow through; null if there is none.
inline const at::Tensor* gradient_path(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.requires_grad()) return &tensor;
  }
  return nullptr;
}

}  // namespace pudica::hooks
