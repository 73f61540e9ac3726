// Where in the backward layers end: hooks on gradients, in recorded steps.
#include <algorithm>

#include <ATen/ATen.h>

#include "torch/gradient_source.h"
#include "torch/session.h"

namespace pudica::hooks {
namespace {

// The tensors that a gradient will flow through and that are not of `others`; the first one that a
// gradient flows through where there is none.
std::vector<at::Tensor> border_tensors(const std::vector<at::Tensor>& tensors,
                                       const std::vector<GradientSource>& others) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.requires_grad() || tensor.is_leaf()) continue;
    if (std::ranges::find(others, source_of(tensor)) == others.end()) out.push_back(tensor);
  }
  const at::Tensor* const first = gradient_path(tensors);
  if (out.empty() && first != nullptr) out.push_back(*first);
  return out;
}

}  // namespace

// The first of the tensors that comes, as the backward goes, is the border.
void Session::hook(const std::vector<at::Tensor>& tensors, MarkKind kind, std::size_t ordinal) {
  for (const at::Tensor& tensor : tensors) {
    tensor.register_hook([state = state_, step = step_, kind,
                          layer = static_cast<std::int32_t>(ordinal)](const at::Tensor&) {
      state->border(step, kind, layer);
      return at::Tensor();
    });
  }
}

void Session::hook_borders(std::size_t ordinal, const OpenLayer& open,
                           const std::vector<at::Tensor>& outputs) {
  contain("a gradient hook", [&] {
    hook(border_tensors(outputs, open.input_sources), MarkKind::kBorder, ordinal);
    latest_outputs_ = sources_of(outputs);
    if (ordinal == 0) hook(border_tensors(open.inputs, {}), MarkKind::kInputBorder, ordinal);
  });
}

// What stands between two layers has a backward of its own, and parameters maybe.
void Session::hook_gap(std::size_t ordinal, const std::vector<at::Tensor>& inputs) {
  contain("a gradient hook", [&] {
    const at::Tensor* const first = gradient_path(inputs);
    if (first == nullptr || first->is_leaf()) return;
    if (std::ranges::find(latest_outputs_, source_of(*first)) != latest_outputs_.end()) return;
    hook(border_tensors(inputs, latest_outputs_), MarkKind::kInputBorder, ordinal);
  });
}

}  // namespace pudica::hooks
