// The models of a random script and what lives of them while it runs.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "torch/random_script.h"
#include "torch/random_script_model.h"

namespace pudica::testing {

class RandomScript::World {
 public:
  World(const RandomScript& script, How how);
  void run(const Operation& one);
  Seen end();

 private:
  // An output, a tensor on the way to it, and the models whose parameters a backward would reach.
  struct Alive {
    at::Tensor output;
    at::Tensor middle;
    std::size_t models = 0;  // a bit each
  };

  void attach_model(std::size_t index, std::size_t choice);
  void note_failures(const ScriptModel& model);
  [[nodiscard]] const Alive* find(const Operation& one) const;
  [[nodiscard]] at::Tensor input_of(const Operation& one) const;
  [[nodiscard]] std::size_t models_of_input(const Operation& one) const;
  void hold(Alive made);
  void note_gradients();

  void forward(const Operation& one, ScriptForward how = {});
  void forward_that_throws(const Operation& one);
  void forward_of_two(const Operation& one);
  void forward_inside(const Operation& one);
  void forward_disturbed(const Operation& one);
  void disturb(const Operation& one, bool in_layer);
  void backward(const Operation& one, bool retains);
  void backward_with(const Operation& one, std::function<void()> act);
  void gradients(const Operation& one, bool twice);
  void update(const Operation& one);
  void drop_graph(const Operation& one);

  void train_beside(const Operation& one, const std::function<void(Seen&)>& other);
  void handles_at_once(const Operation& one);
  void backward_at_once(const Operation& one);

  void perform(const Operation& one);
  void perform_forward(const Operation& one);
  void perform_backward(const Operation& one);
  void perform_at_once(const Operation& one);
  void perform_on_handle(const Operation& one, ScriptModel& model);

  const RandomScript& script_;
  How how_;
  std::vector<ScriptModel> models_;
  std::vector<Alive> alive_;
  int hooks_to_come_ = 0;  // of gradients: callbacks that no backward has reached yet
  Seen seen_;
};

}  // namespace pudica::testing
