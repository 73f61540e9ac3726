#include "daemon/process_check.h"

#include <fstream>
#include <sstream>
#include <string>

namespace pudica::daemon {
namespace {

constexpr int kStateField = 3;  // of /proc/PID/stat, see proc(5)
constexpr int kStartField = 22;

// nullopt: no such process, or one that has ended and waits for its parent.
std::optional<std::uint64_t> start_of(std::int64_t pid) {
  if (pid <= 0) return std::nullopt;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const std::size_t name_end = line.rfind(')');  // the name may hold blanks and brackets
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int number = kStateField; fields >> field; ++number) {
    if (number == kStateField && (field == "Z" || field == "X")) return std::nullopt;
    if (number == kStartField) return std::stoull(field);
  }
  return std::nullopt;
}

}  // namespace

ProcessMark mark_process(std::int64_t pid) { return {pid, start_of(pid)}; }

ProcessState process_state(const ProcessMark& mark) {
  if (!mark.start_ticks) return ProcessState::kUnknown;
  return start_of(mark.pid) == mark.start_ticks ? ProcessState::kThere : ProcessState::kGone;
}

}  // namespace pudica::daemon
