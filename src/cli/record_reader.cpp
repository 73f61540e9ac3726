#include "cli/record_reader.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace pudica::cli {
namespace {

constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20U;

}  // namespace

Result<RecordReader> RecordReader::open(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return invalid_argument(path + " is a folder, expected a file of step records");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Error{ErrorCode::kNotFound, "cannot read " + path + ": " + std::strerror(errno)};
  return RecordReader(path, std::move(file));
}

bool RecordReader::read_line(std::string& line) {
  line.clear();
  auto* const buffer = file_.rdbuf();
  for (;;) {
    const int next = buffer->sbumpc();
    if (next == std::char_traits<char>::eof()) {
      file_.setstate(std::ios::eofbit);
      break;
    }
    if (next == '\n') break;
    if (line.size() == kMaxLineBytes) {
      too_long_ = true;
      break;
    }
    line += static_cast<char>(next);
  }
  if (line.empty() && file_.eof()) return false;
  ++line_;
  return !too_long_;
}

Result<std::optional<StepRecord>> RecordReader::next() {
  for (std::string line; read_line(line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto record = parse_step_record(line);
    if (record) return std::optional<StepRecord>(std::move(*record));
    if (file_.eof()) {
      truncated_ = true;
      return std::optional<StepRecord>();
    }
    return record.error().with_context(path_ + ":" + std::to_string(line_));
  }
  if (too_long_) {
    return invalid_argument(path_ + ":" + std::to_string(line_) + ": the line is longer than " +
                            std::to_string(kMaxLineBytes) + " bytes");
  }
  return std::optional<StepRecord>();
}

}  // namespace pudica::cli
