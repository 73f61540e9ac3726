// Where in the backward layers end: hooks on gradients, in recorded steps.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

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

using torch::autograd::Node;

// Of the graph that these tensors are of, the node made first from `begin` on, which its backward
// comes to last; null: there is none, or too many to look at.
Node* first_node_of(const std::vector<at::Tensor>& tensors, std::uint64_t begin) {
  constexpr std::size_t kMostNodes = 512;
  constexpr auto kOfLeaf = UINT64_MAX;  // what sums up a leaf's gradient has no place in time
  std::vector<Node*> open;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.grad_fn()) open.push_back(tensor.grad_fn().get());
  }
  std::set<const Node*> seen;
  Node* first = nullptr;
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    const std::uint64_t number = node->sequence_nr();
    if (number < begin || number == kOfLeaf || !seen.insert(node).second) continue;
    if (seen.size() > kMostNodes) return nullptr;
    if (first == nullptr || number < first->sequence_nr()) first = node;
    for (const auto& edge : node->next_edges()) {
      if (edge.is_valid()) open.push_back(edge.function.get());
    }
  }
  return first;
}

class HandoverHook final : public torch::autograd::FunctionPostHook {
 public:
  HandoverHook(std::shared_ptr<StepState> state, std::uint64_t step)
      : state_(std::move(state)), step_(step) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list& /*inputs*/) override {
    state_->hands_over(step_);
    return outputs;
  }
  // A compiled backward does without it: by default it throws.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& /*args*/) const override {}

 private:
  std::shared_ptr<StepState> state_;
  std::uint64_t step_;
};

}  // namespace

// Where the backward of all that this forward made is over, and that of one before it begins.
void Session::hook_handover(const std::vector<at::Tensor>& inputs,
                            const std::vector<at::Tensor>& outputs) {
  if (context_.waiting_forwards == 0) return;
  Node* node = first_node_of(inputs, sequence_began_);
  if (gradient_path(inputs) == nullptr) node = first_node_of(outputs, sequence_began_);
  if (node != nullptr) node->add_post_hook(std::make_unique<HandoverHook>(state_, step_));
}

// The first of the tensors that comes, as the backward goes, is the border.
void Session::hook(const std::vector<at::Tensor>& tensors, MarkKind kind, std::size_t ordinal) {
  if (kind == MarkKind::kBorder && !tensors.empty()) state_->expects_border();
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
    if (ordinal > 0) return;
    hook(border_tensors(open.inputs, {}), MarkKind::kInputBorder, ordinal);
    hook_handover(open.inputs, outputs);
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
