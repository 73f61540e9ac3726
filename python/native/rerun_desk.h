// RerunDesk: how a layer that lives in Python is run again without Python's headers: a C function
// pointer from ctypes, and tensors that wait for it here.
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

// Runs the layer call `token` again: fetches inputs() from the desk and hands outputs back. 0:
// done; 1: it threw; 2: it ran out of memory. May be called on any thread; takes the interpreter's
// lock.
using RerunCallback = int (*)(std::int64_t token);

// One a process; leaked. Thread-safe.
class RerunDesk {
 public:
  static RerunDesk& instance();

  // 0: no Python any more (the interpreter ends).
  void set_callback(std::int64_t address);
  // `token` counts as dead once the function and its copies are gone.
  LayerFunction function(std::int64_t token);
  // Tokens that died since the last call.
  std::vector<std::int64_t> take_dead();

  // For the callback, on its thread.
  [[nodiscard]] std::vector<at::Tensor> inputs() const;
  void set_outputs(std::vector<at::Tensor> outputs);
  void set_failure(const std::string& message);

 private:
  struct Token;
  std::vector<at::Tensor> run(std::int64_t token, const std::vector<at::Tensor>& inputs);

  std::atomic<RerunCallback> callback_{nullptr};
  std::mutex mutex_;
  std::vector<std::int64_t> dead_;  // guarded by mutex_
};

}  // namespace pudica::python
