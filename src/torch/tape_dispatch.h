// How the tape sees operators: a fallback on a dispatch key that nothing else uses, below autograd
// and autocast and above the backends.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace pudica::hooks {

class Tape;

// Records this thread's operators on `tape` for its lifetime; null suspends an outer one. Strictly
// nested.
class TapeGuard {
 public:
  explicit TapeGuard(Tape* tape);
  ~TapeGuard();
  TapeGuard(const TapeGuard&) = delete;
  TapeGuard& operator=(const TapeGuard&) = delete;

 private:
  Tape* before_;
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
