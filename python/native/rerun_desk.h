// RerunDesk: how a layer that lives in Python is run again without Python's headers: an operator of
// torch's whose kernel is a Python function, and tensors that wait for it here.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pudica/torch.h"

namespace pudica::python {

// The kernel of `pudica::rerun(int token) -> int` runs the layer call `token` again: it fetches
// inputs() from the desk and hands outputs back. 0: done; 1: it threw; 2: it ran out of memory; 3:
// it knows that it did something else than the forward. What it throws itself, wherever it is
// struck, is an Interruption: torch carries the exception back to Python as it is. Called on any
// thread; takes the interpreter's lock.

// One a process; leaked. Thread-safe.
class RerunDesk {
 public:
  static RerunDesk& instance();

  // Whether the operator has its kernel (the interpreter lives).
  void open(bool is_open);
  // A rerun is under way on this thread.
  [[nodiscard]] static bool is_running();
  // `token` counts as dead once the function and its copies are gone; `alive` has expired then.
  LayerFunction function(std::int64_t token, std::weak_ptr<const void>& alive);
  // Tokens that died since the last call.
  std::vector<std::int64_t> take_dead();

  // For the callback, on its thread.
  [[nodiscard]] std::vector<at::Tensor> inputs() const;
  void set_outputs(std::vector<at::Tensor> outputs);
  void set_failure(const std::string& message);

 private:
  struct Token;
  std::vector<at::Tensor> run(std::int64_t token, const std::vector<at::Tensor>& inputs);

  std::atomic<bool> open_{false};
  std::mutex mutex_;
  std::vector<std::int64_t> dead_;  // guarded by mutex_
};

}  // namespace pudica::python
