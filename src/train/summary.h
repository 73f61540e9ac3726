// What a person reads in the terminal: progress while it runs, a table and a conclusion at the end.
#pragma once

#include <cstdio>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "train/results.h"

namespace pudica::train {

// The table of result.json's policies and one plain sentence, for somebody who sees it first.
std::string summary_table(const nlohmann::json& result);
std::string conclusion(const nlohmann::json& result);

// Shows steps on a stream: one line rewritten on a terminal, else a line now and then.
class Progress {
 public:
  // `columns`: width of the terminal, 0 where the stream is none.
  Progress(std::FILE* stream, std::int64_t columns, std::int64_t steps);

  void note(const std::string& text);  // a line of its own
  void show(const std::string& policy, const StepRow& row);
  void finish();

  // The line for a step, at most `columns` wide (0: unbounded), without control characters.
  [[nodiscard]] static std::string line(const std::string& policy, const StepRow& row,
                                        std::int64_t steps, std::int64_t columns);

 private:
  std::FILE* stream_;
  std::int64_t columns_;
  std::int64_t steps_;
  bool drawn_ = false;
  std::int64_t last_printed_step_ = -1;
};

// Width of the terminal on the stream, 0 where it is none.
std::int64_t terminal_columns(std::FILE* stream);

}  // namespace pudica::train
