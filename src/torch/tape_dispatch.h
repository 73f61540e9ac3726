// How the tape, and what else wants to, sees operators: a fallback on a dispatch key that nothing
// else uses, below autograd and autocast and above the backends.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace pudica::hooks {

// Is given a thread's operators instead of the backend, which it must run each once with
// run_below_tape().
class OperatorObserver {
 public:
  virtual ~OperatorObserver() = default;
  virtual void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                      torch::jit::Stack* stack) = 0;
};

// This thread's operators go to `observer` for its lifetime; null suspends an outer one. Strictly
// nested.
class TapeGuard {
 public:
  explicit TapeGuard(OperatorObserver* observer);
  ~TapeGuard();
  TapeGuard(const TapeGuard&) = delete;
  TapeGuard& operator=(const TapeGuard&) = delete;

 private:
  OperatorObserver* before_;
  bool included_before_;
};

// Runs an operator below the tape.
void run_below_tape(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack);

// Registers the fallback once a process, and tells whether operators reach it and give the same
// results. False: selective modes are not offered (another library took the key, or this build of
// torch orders keys differently).
bool tape_available();

}  // namespace pudica::hooks
