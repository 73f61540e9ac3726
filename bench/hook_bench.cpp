// What the hook layer costs when it has nothing to do: a step of the demo's model with every layer
// kept revocably (hooks on, nothing revoked) and kept hook-free, against no handle at all.
// Interleaved pairs, process CPU clock; the ratio of each pair is what counts.
// Usage: hook_bench [--pairs N] [--json FILE]
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <time.h>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "bench/harness.h"
#include "pudica/torch.h"
#include "train/model.h"

namespace pudica {
namespace {

using train::TokenBatch;

constexpr std::uint64_t kSeed = 7;

class KeepPolicy final : public Policy {
 public:
  explicit KeepPolicy(bool revocable) {
    Plan plan;
    plan.id = 1;
    plan.revocable = revocable;
    plan_ = std::make_shared<const Plan>(std::move(plan));
  }
  [[nodiscard]] std::string name() const override { return "keep"; }
  void on_structure(const StepStructure&) override {}
  StepDecision begin_step(const StepContext&) override { return {plan_, false}; }
  void end_step(const StepOutcome&) override {}

 private:
  PlanPtr plan_;
};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Bench {
 public:
  Bench() {
    train::ModelOptions options;
    options.vocab = 256;
    at::manual_seed(kSeed);
    model_ = train::make_model(options, {.source_length = kLength}, c10::Device(c10::kCPU));
    train::Random random(kSeed);
    TokenBatch tokens;
    tokens.batch = kBatch;
    tokens.lengths = {kLength, 0};
    for (std::int64_t i = 0; i < kBatch * kLength; ++i) {
      tokens.ids[0].push_back(static_cast<std::int64_t>(random.below(255)));
    }
    tokens.valid[0].assign(kBatch, kLength);
    for (std::int64_t i = 0; i < kBatch * kLength / 8; ++i) {
      tokens.positions.push_back(8 * i);
      tokens.labels.push_back(static_cast<std::int64_t>(random.below(255)));
    }
    batch_ = train::to_tensors(tokens, c10::Device(c10::kCPU));
  }

  // One forward and backward; `handle` may be null. Seconds of CPU time.
  double step(Handle* handle) {
    for (auto& parameter : model_->parameters()) parameter.mutable_grad() = at::Tensor();
    const double begin = cpu_seconds();
    if (handle == nullptr) {
      model_->loss(batch_, train::plain_runner()).backward();
    } else {
      handle->begin_step({kBatch, kLength});
      model_
          ->loss(batch_,
                 [handle](std::int64_t index, const LayerFunction& function,
                          std::vector<at::Tensor> inputs, const std::string& layer_class) {
                   return handle->layer(index, function, std::move(inputs), {layer_class, {}});
                 })
          .backward();
      handle->end_step();
    }
    return cpu_seconds() - begin;
  }

 private:
  static constexpr std::int64_t kBatch = 4;
  static constexpr std::int64_t kLength = 210;  // the median line of the demo's text
  std::unique_ptr<train::Model> model_;
  train::TensorBatch batch_;
};

std::unique_ptr<Handle> attach_keeping(bool revocable) {
  AttachOptions options;
  options.policy = std::make_shared<KeepPolicy>(revocable);
  auto handle = attach(std::move(options));
  if (!handle) {
    std::fprintf(stderr, "hook_bench: %s\n", handle.error().message.c_str());
    std::exit(1);
  }
  return std::move(*handle);
}

int run(int argc, char** argv) {
  const bench::Arguments arguments = bench::parse_arguments(argc, argv, /*calls=*/60);
  install_meter();
  at::set_num_threads(1);
  Bench bench;
  for (int i = 0; i < 5; ++i) bench.step(nullptr);
  bench::Report report("hook", kSeed);
  for (const bool revocable : {true, false}) {
    auto handle = attach_keeping(revocable);
    std::vector<double> ratios;
    std::vector<double> plain_ms;
    for (std::int64_t i = 0; i < arguments.calls; ++i) {
      // Each order in turn, so that drift of the machine hits both alike.
      double hooked = 0;
      double plain = 0;
      if (i % 2 == 0) {
        plain = bench.step(nullptr);
        hooked = bench.step(handle.get());
      } else {
        hooked = bench.step(handle.get());
        plain = bench.step(nullptr);
      }
      ratios.push_back(hooked / plain);
      plain_ms.push_back(1e3 * plain);
    }
    const char* what = revocable ? "keep, revocable" : "keep, hook-free";
    report.add(std::string("step with ") + what + " / without handle", "ratio", ratios);
    report.add(std::string("step without handle, beside ") + what, "ms", plain_ms);
  }
  return report.write(arguments);
}

}  // namespace
}  // namespace pudica

int main(int argc, char** argv) { return pudica::run(argc, argv); }
