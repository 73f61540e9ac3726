// Property: whatever a layer does, every way to run it gives the gradients of running it plainly,
// to the bit.
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "pudica/torch.h"
#include "torch/class_menu.h"
#include "torch/forwarding_engine.h"
#include "torch/frame.h"
#include "torch/host_tier.h"
#include "torch/meter.h"
#include "torch/random_layer.h"
#include "torch/registry.h"
#include "torch/toy_model.h"

namespace pudica::testing {
namespace {

constexpr int kLayers = 3;
constexpr std::int64_t kRows = 40;
constexpr std::int64_t kAll = std::int64_t{1} << 40U;

// How a chain of equal layers is run.
struct Way {
  bool plain = false;
  bool store = true;
  std::int32_t menu_step = hooks::FrameOptions::kNoStep;
  bool taped = false;
  bool joint = false;
  bool offload = false;
  std::int64_t revoke_bytes = 0;        // after the forward
  std::int64_t revoke_in_backward = 0;  // when the gradient of each layer's output is there
  int backward_passes = 1;              // > 1: the graph is retained
  bool of_gradient = false;             // the backward of a gradient's square instead
};

class Chain {
 public:
  explicit Chain(std::uint64_t seed) : layer_(seed), seed_(seed) {
    at::manual_seed(seed);
    input_ = at::randn({kRows, RandomLayer::kColumns});
  }

  std::vector<at::Tensor> run(const Way& way) {
    for (at::Tensor parameter : layer_.parameters()) parameter.mutable_grad() = at::Tensor();
    at::manual_seed(seed_ + 1);
    const at::Tensor leaf = input_.detach().clone().requires_grad_(true);
    const auto registry = std::make_shared<hooks::Registry>(hooks::cpu_meter());
    const std::vector<at::Tensor> outputs = forward(way, leaf, registry);
    const std::int64_t before = hooks::cpu_meter().in_use_bytes();
    if (way.revoke_bytes > 0) registry->revoke(way.revoke_bytes);
    freed_bytes_ = before - hooks::cpu_meter().in_use_bytes();
    at::Tensor loss = outputs[0].to(at::kFloat).pow(2).mean();
    if (outputs[1].requires_grad()) loss = loss + outputs[1].to(at::kFloat).mean();
    if (way.of_gradient) {
      loss = torch::autograd::grad({loss}, {leaf}, {}, true, true)[0].pow(2).sum();
    }
    for (int pass = 1; pass <= way.backward_passes; ++pass) {
      torch::autograd::backward({loss}, {}, /*retain_graph=*/pass < way.backward_passes);
    }
    std::vector<at::Tensor> out{loss.detach(), outputs[0].detach(), outputs[1].detach()};
    std::vector<at::Tensor> leaves = layer_.parameters();
    leaves.push_back(leaf);
    for (const at::Tensor& one : leaves) {
      out.push_back(one.grad().defined() ? one.grad().clone() : at::zeros({1}));
    }
    return out;
  }

  // nullopt: autograd refuses it.
  std::optional<std::vector<at::Tensor>> plain(Way way) {
    way = {.plain = true, .backward_passes = way.backward_passes, .of_gradient = way.of_gradient};
    try {
      return run(way);
    } catch (const c10::Error&) {
      return std::nullopt;
    }
  }

  [[nodiscard]] std::shared_ptr<const hooks::ClassMenu> menu() const { return tapes_->menu(); }
  [[nodiscard]] const RandomLayer& layer() const { return layer_; }
  // After the forward of the latest run, by revoking.
  [[nodiscard]] std::int64_t freed_bytes() const { return freed_bytes_; }

 private:
  std::vector<at::Tensor> forward(const Way& way, const at::Tensor& leaf,
                                  const std::shared_ptr<hooks::Registry>& registry) {
    std::vector<at::Tensor> x{leaf * 1., leaf.sin()};
    const Autocast autocast(seed_ % 4 == 0);
    std::shared_ptr<hooks::Frame> frame;
    for (int k = 0; k < kLayers; ++k) {
      // One layer of some chains does something else than its class.
      const std::uint64_t variation = k == 1 && seed_ % 3 == 0 ? seed_ : RandomLayer::kAsEver;
      const hooks::FrameFunction function = [this, variation](const auto& in) {
        return layer_.forward(in, variation);
      };
      if (way.plain) {
        x = function(x);
      } else {
        if (!frame || !way.joint) frame = hooks::Frame::make(options(way, registry));
        x = frame->run_part(function, x, {});
        if (!way.joint || k + 1 == kLayers) frame->finish();
      }
      if (way.revoke_in_backward == 0) continue;
      x[0].register_hook([registry, bytes = way.revoke_in_backward](const at::Tensor&) {
        registry->revoke(bytes);
      });
    }
    return x;
  }

  hooks::FrameOptions options(const Way& way, const std::shared_ptr<hooks::Registry>& registry) {
    hooks::FrameOptions options;
    options.store = way.store;
    if (way.store) options.registry = registry;
    if (way.taped) options.tapes = tapes_;
    options.menu_step = way.menu_step;
    if (way.offload) options.host = hooks::make_simulated_host_tier({}, hooks::HostClock(clock_));
    options.timer = hooks::WorkTimer(hooks::HostClock(clock_));
    return options;
  }

  RandomLayer layer_;
  std::uint64_t seed_;
  at::Tensor input_;
  std::int64_t freed_bytes_ = 0;
  // Which tensors of which layers are revoked first follows from seconds.
  std::shared_ptr<WorkClock> clock_ = operator_clock();
  std::shared_ptr<hooks::ClassTapes> tapes_ = std::make_shared<hooks::ClassTapes>();
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() &&
         at::equal(a.contiguous().view(at::kInt), b.contiguous().view(at::kInt));
}

class Checker {
 public:
  explicit Checker(std::uint64_t seed) : seed_(seed), chain_(seed) {
    for (const int passes : {1, 2}) expected_.push_back(chain_.plain({.backward_passes = passes}));
    expected_.push_back(chain_.plain({.of_gradient = true}));
  }
  [[nodiscard]] bool valid() const { return expected_[0] && expected_[1]; }
  [[nodiscard]] bool failed() const { return failed_; }

  void expect(const char* name, Way way) {
    const auto& result =
        expected_[way.of_gradient ? 2 : static_cast<std::size_t>(way.backward_passes - 1)];
    if (failed_ || !result) return;
    const auto& expected = *result;
    std::string wrong;
    try {
      const auto actual = chain_.run(way);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (!same_bits(expected[i], actual[i])) wrong += " " + std::to_string(i);
      }
      if (!wrong.empty()) wrong = "other bits in" + wrong;
    } catch (const std::exception& error) {
      wrong = std::string(error.what()).substr(0, 400);
    }
    failed_ = !wrong.empty();
    EXPECT_TRUE(wrong.empty()) << "seed " << seed_ << ", " << name << ", step " << way.menu_step
                               << ": " << wrong << "\n"
                               << chain_.layer().text();
  }

  // A layer with a tape gives back what one without does. Under autocast the layers share a cast,
  // which is none of theirs to give.
  void expect_all_can_go() {
    if (seed_ % 4 == 0) return;
    expect("kept and revoked", {.revoke_bytes = kAll});
    const std::int64_t freed = chain_.freed_bytes();
    expect("taped and revoked", {.taped = true, .revoke_bytes = kAll});
    if (failed_) return;
    failed_ = chain_.freed_bytes() < freed;
    EXPECT_GE(chain_.freed_bytes(), freed) << "seed " << seed_ << "\n" << chain_.layer().text();
  }

  // The number of its menu's steps.
  std::int32_t every_way() {
    expect("kept", {});
    expect("kept and revoked", {.revoke_bytes = kAll});
    expect("full", {.store = false});
    expect("full, joint", {.store = false, .joint = true});
    expect("full, twice", {.store = false, .backward_passes = 2});
    expect("offloaded", {.offload = true});
    expect("offloaded, twice", {.offload = true, .backward_passes = 2});
    expect("full, of a gradient", {.store = false, .of_gradient = true});
    expect("offloaded, of a gradient", {.offload = true, .of_gradient = true});
    for (int i = 0; i < 2; ++i) expect("collected", {.taped = true});
    if (!chain_.menu()) return 0;
    expect_all_can_go();
    const auto steps = static_cast<std::int32_t>(chain_.menu()->steps.size());
    for (std::int32_t step = hooks::FrameOptions::kNoStep; step < steps; ++step) {
      const Way way{.menu_step = step, .taped = true};
      expect("taped", way);
      for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{20'000}, kAll}) {
        Way revoked = way;
        revoked.revoke_bytes = bytes;
        expect("taped and revoked", revoked);
        Way later = way;
        later.revoke_in_backward = bytes;
        expect("taped and revoked in the backward", later);
      }
      Way second = way;
      second.of_gradient = true;
      expect("taped, of a gradient", second);
      second.revoke_in_backward = 20'000;
      expect("taped, of a gradient, revoked in the backward", second);
      Way twice = way;
      twice.backward_passes = 2;
      expect("taped, twice", twice);
      twice.revoke_in_backward = 20'000;
      expect("taped, twice, and revoked in the backward", twice);
    }
    return steps;
  }

 private:
  std::uint64_t seed_;
  Chain chain_;
  std::vector<std::optional<std::vector<at::Tensor>>> expected_;
  bool failed_ = false;
};

// PUDICA_RANDOM_LAYERS: as many, from the seed PUDICA_RANDOM_SEED on.
std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(RandomLayers, EveryWayToRunThemIsBitEqual) {
  hooks::install_engine();
  hooks::cpu_meter();
  at::set_num_threads(1);  // on so little data more only wait for each other
  const std::uint64_t first = number_from("PUDICA_RANDOM_SEED", 1);
  const std::uint64_t layers = number_from("PUDICA_RANDOM_LAYERS", 60);
  std::uint64_t valid = 0;
  std::uint64_t with_menu = 0;
  std::uint64_t seed = first;
  for (; valid < layers && seed < first + 50 * layers; ++seed) {
    at::manual_seed(seed);
    Checker checker(seed);
    if (!checker.valid()) continue;
    ++valid;
    with_menu += checker.every_way() > 0 ? 1 : 0;
  }
  EXPECT_EQ(valid, layers);
  EXPECT_GT(with_menu, layers / 2);
  RecordProperty("seeds", static_cast<int>(seed - first));
}

}  // namespace
}  // namespace pudica::testing
