// The parent process: starts a worker for each policy, has them step in turn, gathers what they
// measured and writes it.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "pudica/result.h"
#include "train/options.h"
#include "train/protocol.h"
#include "train/results.h"

namespace pudica::train {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

// How the parent reaches the world; tests give their own.
struct ParentOptions {
  // The worker's program; empty: this program itself.
  std::string worker_program;
  // What follows the program's name: `--worker` and the user's own arguments.
  std::vector<std::string> worker_arguments;
  // Asked between steps; true ends the run, politely.
  std::function<bool()> stopping = [] { return false; };
  std::FILE* progress_stream = stderr;
  std::FILE* table_stream = stdout;
};

// Runs everything and returns the exit code.
int run_parent(const TrainOptions& options, const ParentOptions& parent);

}  // namespace pudica::train
