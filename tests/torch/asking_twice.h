// A custom autograd function as users write them.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

namespace pudica::testing {

// A product whose backward asks for what it saved once for each gradient.
struct AskingTwice : torch::autograd::Function<AskingTwice> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& a,
                            const at::Tensor& b) {
    context->save_for_backward({a, b});
    return a * b;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor left = gradients[0] * context->get_saved_variables()[1];
    const at::Tensor right = gradients[0] * context->get_saved_variables()[0];
    return {left, right};
  }
};

}  // namespace pudica::testing
