// A program outside the project: attaches, runs one layer and detaches.
#include <cstdlib>
#include <pudica/torch.h>

#include <torch/torch.h>

int main() {
  pudica::AttachOptions options;
  options.budget_bytes = pudica::Bytes(std::int64_t{1} << 30);
  auto handle = pudica::attach(options);
  if (!handle) return EXIT_FAILURE;
  auto linear = torch::nn::Linear(8, 8);
  (*handle)->begin_step(pudica::ShapeKey{4, 8});
  auto output = (*handle)->layer(
      0, [linear](const at::Tensor& x) mutable { return linear->forward(x); }, torch::ones({4, 8}));
  output.sum().backward();
  const pudica::StepReport report = (*handle)->end_step();
  (*handle)->detach();
  return report.layer_calls == 1 && linear->weight.grad().defined() ? EXIT_SUCCESS : EXIT_FAILURE;
}
