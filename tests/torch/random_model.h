// Small models of random layers, trained for some steps of random length as somebody's script might
// do it: accumulating or not, outputs held or not, gradients freed or zeroed. For property tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "pudica/torch.h"
#include "torch/random_layer.h"

namespace pudica::testing {

class RandomModel {
 public:
  explicit RandomModel(std::uint64_t seed);

  struct Run {
    // Of every loss, and of the parameters after the last step: copies that no meter counts.
    std::vector<std::string> losses;
    std::vector<std::string> parameters;
    std::vector<StepReport> steps;  // empty where nothing was attached
    std::int64_t failures = 0;
  };
  // From the same parameters every time. nullopt options: plainly. Exceptions of torch pass through
  // (autograd refuses some layers).
  [[nodiscard]] Run train(std::optional<AttachOptions> options) const;
  // How it is built and trained, to be read where a test fails.
  [[nodiscard]] std::string text() const;

 private:
  struct Trainee;
  // What a script may do besides, all the time or in some steps.
  struct Habits {
    bool holds_outputs = false;
    bool zeroes_gradients = false;
    bool has_momentum = false;
    bool autocast = false;
    bool skips_layers = false;   // stochastic depth
    bool evaluates = false;      // a forward without gradients between two steps
    bool fails = false;          // a forward that throws, and is begun again
    bool retains = false;        // the graph of a backward, for a second one
    bool of_gradient = false;    // the loss is one of a gradient
    bool ties = false;           // the last layer is the first one again
    bool steps_outside = false;  // the optimizer, after end_step()
  };
  std::size_t pick(std::size_t count);
  bool is_one_in(std::size_t count) { return pick(count) == 0; }
  [[nodiscard]] bool is_skipped(std::size_t number, std::size_t layer) const;
  [[nodiscard]] std::vector<at::Tensor> forward(Trainee& trainee, std::size_t number,
                                                std::int64_t rows, std::size_t throws_at) const;
  [[nodiscard]] at::Tensor loss(Trainee& trainee, std::size_t number) const;
  void differ_from_training(Trainee& trainee, std::size_t number) const;
  void step(Trainee& trainee, std::size_t number) const;
  void update(Trainee& trainee) const;

  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::vector<std::uint64_t> class_seeds_;
  std::vector<std::size_t> layer_classes_;
  std::vector<std::int64_t> rows_;  // by micro-batch
  std::size_t accumulated_ = 1;     // micro-batches an optimizer step
  std::size_t deviant_;             // a layer that does something else than its class; or none
  Habits habits_;
};

}  // namespace pudica::testing
