// The models of random scripts: layers that may be attached, taken apart or made to fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "pudica/torch.h"

namespace pudica::testing {

constexpr std::int64_t kScriptColumns = 8;

// Plans at random: modes, joint segments, recording, revocable or not.
std::shared_ptr<Policy> make_random_plans(std::uint64_t seed);

std::string bytes_of(const at::Tensor& tensor);

struct ScriptLayer {
  at::Tensor in = (at::randn({kScriptColumns, kScriptColumns}) / 3.).set_requires_grad(true);
  at::Tensor out = (at::randn({kScriptColumns, kScriptColumns}) / 3.).set_requires_grad(true);
  bool has_noise = true;

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;
};

// How one forward runs its layers.
struct ScriptForward {
  static constexpr std::size_t kNowhere = 1000;
  // Run inside layer `at`'s function, before its operators or after them; may throw.
  std::function<void()> inside;
  bool inside_after = false;
  // Added to layer `at`'s input, inside its function. May be empty.
  std::function<at::Tensor(const at::Tensor&)> term;
  std::function<void()> behind;  // layer `at`, outside of its function
  std::size_t at = kNowhere;
  bool by_halves = false;
  bool unproven = false;
};

struct ScriptModel {
  std::vector<std::shared_ptr<ScriptLayer>> layers;
  std::unique_ptr<Handle> handle;
  bool fails_again = false;  // layers that are run again throw, or give something else
  int in_forward = 0;        // forwards that are open: the handle must stay

  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  void begin_step(const at::Tensor& input) const;
  [[nodiscard]] at::Tensor run_layer(std::size_t index, const at::Tensor& x,
                                     const ScriptForward& how = {}) const;
  // `middle`: what the layer `how.at` gave, or the last.
  [[nodiscard]] at::Tensor forward(at::Tensor x, const ScriptForward& how = {},
                                   at::Tensor* middle = nullptr);
};

}  // namespace pudica::testing
