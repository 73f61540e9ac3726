// What mode `offload` adds to a forward when copies to the host begin as tensors are saved, and
// when they begin as the layer ends: a chain of feed-forward layers against the same chain kept,
// over simulated links. Interleaved, wall clock (what waits for a link works nothing). Usage:
// offload_bench [--calls ROUNDS] [--json FILE]
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/harness.h"
#include "pudica/torch.h"
#include "torch/forwarding_engine.h"
#include "torch/frame.h"
#include "torch/host_tier.h"

namespace pudica {
namespace {

constexpr std::uint64_t kSeed = 7;
constexpr std::int64_t kTokens = 1024;
constexpr std::int64_t kHidden = 256;
constexpr std::size_t kLayers = 6;
constexpr int kWarmup = 4;  // a class begins its copies early from its third call on

using Clock = std::chrono::steady_clock;
using Tensors = std::vector<at::Tensor>;

class Chain {
 public:
  Chain() {
    at::manual_seed(kSeed);
    for (std::size_t i = 0; i < kLayers; ++i) {
      weights_.push_back(leaf(at::randn({kHidden, 4 * kHidden}) / 16.0));
      weights_.push_back(leaf(at::randn({4 * kHidden, kHidden}) / 32.0));
    }
    input_ = at::randn({kTokens, kHidden});
  }

  // Milliseconds of the forward alone; a backward follows it.
  double forward_ms(const hooks::FrameOptions& options) {
    at::Tensor x = leaf(input_) * 1.0;
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < kLayers; ++i) {
      const at::Tensor up = weights_[2 * i];
      const at::Tensor down = weights_[2 * i + 1];
      const auto frame = hooks::Frame::make(options);
      x = frame->run_part(
          [up, down](const Tensors& in) {
            const at::Tensor wide = at::gelu(at::matmul(in[0], up));
            return Tensors{in[0] + at::tanh(at::matmul(wide, down))};
          },
          {x}, {})[0];
      frame->finish();
      offloaded_ = offloaded_ && (!options.host || frame->offloaded());
    }
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    torch::autograd::backward({x.pow(2).mean()});
    return ms;
  }

  [[nodiscard]] bool offloaded() const { return offloaded_; }

 private:
  static at::Tensor leaf(const at::Tensor& tensor) {
    return tensor.detach().clone().set_requires_grad(true);
  }

  Tensors weights_;
  at::Tensor input_;
  bool offloaded_ = true;
};

int run(int argc, char** argv) {
  const bench::Arguments arguments = bench::parse_arguments(argc, argv, /*calls=*/60);
  install_meter();
  hooks::install_engine();
  at::set_num_threads(1);
  Chain chain;
  bench::Report report("offload", kSeed);
  for (const double gb_per_second : {0.5, 1.0, 2.0, 4.0}) {
    hooks::FrameOptions at_end;
    at_end.host =
        hooks::make_simulated_host_tier({.simulated_bytes_per_second = 1e9 * gb_per_second});
    hooks::FrameOptions early = at_end;
    early.offload_habit = std::make_shared<hooks::OffloadHabit>();
    std::vector<double> kept_ms;
    std::vector<double> at_end_ratio;
    std::vector<double> early_ratio;
    for (std::int64_t i = -kWarmup; i < arguments.calls; ++i) {
      const double kept = chain.forward_ms({});
      const double late = chain.forward_ms(at_end);
      const double soon = chain.forward_ms(early);
      if (i < 0) continue;
      kept_ms.push_back(kept);
      at_end_ratio.push_back(late / kept);
      early_ratio.push_back(soon / kept);
    }
    char link[32];
    std::snprintf(link, sizeof link, " at %.1f GB/s", gb_per_second);
    report.add(std::string("copies at the layer's end / kept") + link, "ratio", at_end_ratio);
    report.add(std::string("copies as tensors are saved / kept") + link, "ratio", early_ratio);
    report.add(std::string("kept, beside them") + link, "ms", kept_ms);
  }
  if (!chain.offloaded()) {
    std::fprintf(stderr, "offload_bench: a layer stayed where it was\n");
    return 1;
  }
  return report.write(arguments);
}

}  // namespace
}  // namespace pudica

int main(int argc, char** argv) { return pudica::run(argc, argv); }
