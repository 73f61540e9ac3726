// The engine that hands out our saved-tensor hooks and forwards everything else.
//
// A SavedVariable asks the default autograd engine for its hooks. We install an Engine that answers
// from a thread-local stack of save modes and forwards execute() to the engine that was there
// before, so that backward itself never runs on ours (only one Engine instance of a process may run
// backward on CUDA).
#pragma once

#include <memory>

#include <torch/csrc/autograd/saved_variable_hooks.h>

namespace pudica::hooks {

// Makes the hooks of the tensors saved while it is on top of the thread's stack.
class SaveMode {
 public:
  virtual ~SaveMode() = default;
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() = 0;
};

// Puts a save mode on this thread's stack for its lifetime. Not movable. Those of a thread may go
// in any order: a layer may be abandoned by what a recompute inside it calls.
class SaveModeGuard {
 public:
  explicit SaveModeGuard(SaveMode* mode);
  ~SaveModeGuard();
  SaveModeGuard(const SaveModeGuard&) = delete;
  SaveModeGuard& operator=(const SaveModeGuard&) = delete;

 private:
  SaveMode* mode_;
};

// Idempotent. Thread-safe. The engine object lives until the process ends: graph nodes may outlive
// an uninstall, after which the stub returns the engine that was there before.
void install_engine();
void uninstall_engine();

// True if a tensor saved under a save mode reaches that mode's hooks in this build of torch.
bool engine_self_test();

}  // namespace pudica::hooks
