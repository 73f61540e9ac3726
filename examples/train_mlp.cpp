// Trains a stack of blocks on batches of varying length under a byte budget.
#include <cstdio>

#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include "pudica/torch.h"

namespace nn = torch::nn;

// A residual block; any module with forward(Tensor) will do.
struct BlockImpl : nn::Module {
  explicit BlockImpl(int64_t width)
      : wide(register_module("wide", nn::Linear(width, 4 * width))),
        back(register_module("back", nn::Linear(4 * width, width))) {}
  torch::Tensor forward(torch::Tensor x) {
    return x + nn::functional::dropout(back(torch::gelu(wide(x))));
  }
  nn::Linear wide, back;
};
TORCH_MODULE(Block);

int main() {
  pudica::install_meter();  // before the model: its parameters count too
  torch::manual_seed(1);
  nn::Sequential blocks;
  for (int i = 0; i < 8; ++i) blocks->push_back(Block(64));
  torch::optim::AdamW optimizer(blocks->parameters(), 1e-3);

  pudica::AttachOptions options;
  options.budget_bytes = pudica::Bytes(16 << 20);
  options.enforcement = pudica::Enforcement::kHard;
  options.parameters = blocks->parameters();
  auto attached = pudica::attach(std::move(options));
  if (!attached) {
    std::fprintf(stderr, "%s\n", attached.error().message.c_str());
    return 1;
  }
  pudica::Handle& pudica = **attached;

  for (int step = 0; step < 24; ++step) {
    const int64_t length = 40 + 37 * step % 200;
    const auto input = torch::randn({8, length, 64});
    optimizer.zero_grad();
    pudica.begin_step({8, length});  // what varies: batch and length
    const auto loss = (pudica.run(blocks, input) - input.flip(1)).pow(2).mean();
    loss.backward();
    optimizer.step();
    const pudica::StepReport report = pudica.end_step();
    std::printf("%8s  peak %6.1f of %.1f MiB  %lld of %lld layers recomputed  %s\n",
                report.shape.to_string().c_str(), report.peak_bytes.mebibytes(),
                report.budget_bytes.mebibytes(), static_cast<long long>(report.recomputed_layers),
                static_cast<long long>(report.layer_calls),
                report.plan ? report.plan->reason.c_str() : "");
    if (report.overrun || report.peak_bytes > report.budget_bytes) return 1;
  }
  return 0;
}
