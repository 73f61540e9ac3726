// A small chain of transformer layers on raw tensors, run in frames as a list of treatments says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "torch/frame.h"
#include "torch/registry.h"

namespace pudica::testing {

enum class Attention { kFlash, kMath };
// How one layer of the chain is run.
enum class Treatment {
  kPlain,
  kKeep,
  kFull,
  kRevoked,
  kNestedFull,
  kNestedKeep,
  // To a host tier; the same with a frame inside; the same, but the tier has no room and the frame
  // is revoked after the forward.
  kOffload,
  kNestedOffload,
  kOffloadRefused,
  // By tape: nothing dropped; the menu's first, middle and last step; some and all single tensors
  // that the tape can give revoked after the forward, and then the rest, with a step of the menu
  // or without; nothing dropped, and a frame inside.
  kTapeKeep,
  kTapeFirst,
  kTapeMiddle,
  kTapeLast,
  kTapeRevokedSome,
  kTapeRevokedAll,
  kTapeRevokedWhole,
  kTapeMiddleRevokedWhole,
  kTapeNested,
};

// While it lives and `on`: CPU autocast to bfloat16.
class Autocast {
 public:
  explicit Autocast(bool on);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
  bool was_enabled_;
};

struct ToyOptions {
  std::int64_t layers = 4;
  std::int64_t hidden = 32;
  std::int64_t heads = 2;
  Attention attention = Attention::kFlash;
  bool pre_norm = false;
  bool in_place = false;  // activations changed where they are
  bool autocast_bf16 = false;
  double dropout = 0.1;
};

// One transformer layer; parameters are leaves that require gradients.
struct ToyLayer {
  explicit ToyLayer(const ToyOptions& options);
  [[nodiscard]] at::Tensor attend(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor feed_forward(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

  ToyOptions options;
  std::vector<at::Tensor> parameters;
};

struct ToyModel {
  explicit ToyModel(const ToyOptions& options, std::uint64_t seed = 7);
  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  void clear_gradients();

  ToyOptions options;
  std::vector<std::shared_ptr<ToyLayer>> layers;
};

// Gradients of every parameter and of the input, and the loss, after one forward and backward with
// the given treatments (repeated cyclically).
struct StepResult {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
  std::int64_t peak_bytes = 0;
};

struct StepPlan {
  std::vector<Treatment> treatments{Treatment::kPlain};
  std::shared_ptr<hooks::Registry> registry;  // made if null and needed
  std::shared_ptr<hooks::HostTier> host;      // of the layers that are offloaded; made if null
  std::shared_ptr<hooks::ClassTapes> tapes;   // of the layers; needed by the tape's treatments
  int backward_passes = 1;                    // > 1: the graph is retained
  std::function<void()> after_forward;        // before the loss's backward
  std::function<void()> after_backward;       // each, the last one aside
  std::function<void()> during_backward;      // when the gradient reaches the middle layer
};

StepResult run_step(ToyModel& model, const at::Tensor& input, const StepPlan& plan);

// These fail the test that calls them unless both are equal to the bit.
void expect_equal(const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& actual);
// And no gradient is 0 throughout.
void expect_identical(const StepResult& expected, const StepResult& actual);

}  // namespace pudica::testing
