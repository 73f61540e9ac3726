// Step records from a file, one at a time.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "inspect/json.h"
#include "pudica/result.h"

namespace pudica::cli {

// Holds one line at a time. Empty lines are passed over; a last line without its end that cannot be
// read was cut off by the end of the run and counts as the file's end. Not thread-safe.
class RecordReader {
 public:
  // Errors: kNotFound, kInvalidArgument (a folder, say).
  static Result<RecordReader> open(const std::string& path);

  // nullopt: the end. Errors: kInvalidArgument with file and line.
  Result<std::optional<StepRecord>> next();

  // The last line was cut off.
  [[nodiscard]] bool truncated() const { return truncated_; }
  // Of the record read last, from 1.
  [[nodiscard]] std::int64_t line() const { return line_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  RecordReader(std::string path, std::ifstream file)
      : path_(std::move(path)), file_(std::move(file)) {}
  // False: the end, or a line beyond the limit.
  bool read_line(std::string& line);

  std::string path_;
  std::ifstream file_;
  std::int64_t line_ = 0;
  bool truncated_ = false;
  bool too_long_ = false;
};

}  // namespace pudica::cli
