#include "inspect/origin.h"

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <thread>

namespace pudica {
namespace {

using nlohmann::json;

// They change what is measured.
constexpr std::array kVariables = {
    "ATEN_CPU_CAPABILITY", "GLIBC_TUNABLES",     "MALLOC_ARENA_MAX", "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",     "ONEDNN_MAX_CPU_ISA", "OMP_WAIT_POLICY",
};
// From the most that a processor may have to the least.
constexpr std::array kInstructionSets = {"amx_bf16", "avx512_bf16", "avx512f", "avx2", "avx"};

// The value of the first line of /proc/cpuinfo that has this name; empty: none.
std::string cpuinfo(const std::string& name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with(name) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

json instruction_set() {
  std::istringstream flags(cpuinfo("flags"));
  std::vector<std::string> found;
  for (std::string flag; flags >> flag;) found.push_back(flag);
  if (found.empty()) return {};
  for (const char* name : kInstructionSets) {
    for (const auto& flag : found) {
      if (flag == name) return name;
    }
  }
  return "none of avx";
}

std::string compiler() {
#ifdef __clang__
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts);
  return text.data();
}

std::string without_source_folder(std::string word) {
  const std::string folder = PUDICA_SOURCE_FOLDER "/";
  for (auto at = word.find(folder); at != std::string::npos; at = word.find(folder)) {
    word.erase(at, folder.size());
  }
  return word;
}

}  // namespace

json describe_machine() {
  const std::string cpu = cpuinfo("model name");
  json machine = {{"cpu", cpu.empty() ? json() : json(cpu)},
                  {"cores", std::thread::hardware_concurrency()},
                  {"memory_bytes", json()},
                  {"instruction_set", instruction_set()},
                  {"system", json()},
                  {"load_1min", json()}};
  struct sysinfo info {};
  if (sysinfo(&info) == 0) {
    machine["memory_bytes"] = static_cast<std::uint64_t>(info.totalram) * info.mem_unit;
  }
  utsname names{};
  if (uname(&names) == 0) {
    machine["system"] = std::string(names.sysname) + " " + names.release + " " + names.machine;
  }
  double load = 0;
  if (getloadavg(&load, 1) == 1) machine["load_1min"] = load;
  return machine;
}

json describe_versions() { return {{"compiler", compiler()}}; }

std::vector<std::pair<std::string, std::string>> measuring_environment() {
  return {{"OMP_WAIT_POLICY", "PASSIVE"},
          {"GLIBC_TUNABLES",
           "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=4294967296:"
           "glibc.malloc.top_pad=67108864"}};
}

json describe_origin(const std::vector<std::string>& command,
                     const std::vector<std::pair<std::string, std::string>>& given) {
  json environment = json::object();
  for (const char* name : kVariables) {
    if (const char* value = std::getenv(name)) environment[name] = value;
  }
  for (const auto& [name, value] : given) environment[name] = value;
  std::string line;
  for (const auto& word : command) {
    if (!line.empty()) line += ' ';
    line += line.empty() ? word.substr(word.rfind('/') + 1) : without_source_folder(word);
  }
  const BuildRevision built = build_revision();
  return {{"revision", built.revision.empty() ? json() : json(built.revision)},
          {"modified", built.revision.empty() ? json() : json(built.modified)},
          {"date", today()},
          {"command", line},
          {"environment", environment}};
}

}  // namespace pudica
