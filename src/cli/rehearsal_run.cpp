#include "cli/rehearsal_run.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/taken_signals.h"
#include "cli/training_command.h"
#include "config/config.h"

namespace pudica::cli {
namespace {

constexpr int kCannotStart = 127;
constexpr std::array<int, 4> kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// For the handler, which may use nothing else.
volatile std::sig_atomic_t g_group = 0;
volatile std::sig_atomic_t g_signal = 0;

void pass_on(int signal) {
  g_signal = signal;
  if (g_group > 0) kill(-static_cast<pid_t>(g_group), signal);
}

// Signals to this program reach the command's process group as long as this lives.
class PassedSignals {
 public:
  PassedSignals() : taken_(cleared(), pass_on) {}
  ~PassedSignals() { g_group = 0; }
  PassedSignals(const PassedSignals&) = delete;
  PassedSignals& operator=(const PassedSignals&) = delete;

 private:
  static std::array<int, kSignals.size()> cleared() {
    g_signal = 0;
    return kSignals;
  }

  TakenSignals<kSignals.size()> taken_;
};

// `setting` behind what the variable has that torch looks at.
void add_to_allocator_settings(const std::string& setting) {
  const auto older = process_environment("PYTORCH_CUDA_ALLOC_CONF");  // wins where it is set
  const char* const name =
      older && !older->empty() ? "PYTORCH_CUDA_ALLOC_CONF" : "PYTORCH_ALLOC_CONF";
  const std::string before = process_environment(name).value_or("");
  setenv(name, (before + (before.empty() ? "" : ",") + setting).c_str(), 1);
}

void set_environment(const Rehearsal& rehearsal, const std::string& way, Bytes memory,
                     const std::string& budget) {
  prepend_environment("LD_PRELOAD", rehearsal.library);
  prepend_environment("PYTHONPATH", rehearsal.startup);
  setenv("PUDICA_ATTACH", "1", 1);
  setenv("PUDICA_EMULATED_DEVICE", "1", 1);
  setenv("PUDICA_EMULATED_CARD", rehearsal.card->name, 1);
  setenv("PUDICA_EMULATED_DEVICES", std::to_string(rehearsal.devices).c_str(), 1);
  setenv("PUDICA_EMULATED_BYTES", std::to_string(memory.count()).c_str(), 1);
  setenv("PUDICA_REHEARSAL", rehearsal.folder.c_str(), 1);
  setenv("PUDICA_REHEARSAL_WAY", way.c_str(), 1);
  setenv("PUDICA_REHEARSAL_STEPS", std::to_string(rehearsal.most_steps).c_str(), 1);
  // What it leaves among temporary files goes with the folder.
  setenv("TMPDIR", (rehearsal.folder + "/tmp").c_str(), 1);
  // No daemon hears of it.
  setenv("PUDICA_SOCKET", (rehearsal.folder + "/none").c_str(), 1);
  if (!rehearsal.segments.empty()) add_to_allocator_settings(rehearsal.segments);
  if (!budget.empty()) setenv("PUDICA_BUDGET", budget.c_str(), 1);
  // As it is: an attach() of the script's own does nothing.
  if (way == "as-is") {
    setenv("PUDICA_DISABLE", "1", 1);
  } else {
    unsetenv("PUDICA_DISABLE");
  }
}

// In the child: what it prints goes to standard error, and it reads nothing.
[[noreturn]] void become(const std::vector<std::string>& program, int failed) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
  std::vector<std::string> words = program;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  const int why = errno;
  static_cast<void>(!write(failed, &why, sizeof why));
  _exit(kCannotStart);
}

std::vector<Json> read_reports(const std::string& folder, const std::string& way) {
  std::vector<Json> reports;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(way + "-") || !name.ends_with(".json")) continue;
    std::ifstream file(entry.path());
    Json report = Json::parse(file, nullptr, false);
    if (report.is_object()) reports.push_back(std::move(report));
    std::error_code ignored;
    std::filesystem::remove(entry.path(), ignored);
  }
  return reports;
}

void wait_for(pid_t child, RehearsedWay& way) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  kill(-child, SIGKILL);  // what it left running
  if (WIFSIGNALED(status)) way.signal = WTERMSIG(status);
  if (WIFEXITED(status)) way.exit_code = WEXITSTATUS(status);
  way.stopped_by = static_cast<int>(g_signal);
}

}  // namespace

Bytes peak_of(const Json& report, const std::string& kind) {
  std::int64_t most = integer(report, "outside." + kind).value_or(0);
  for (const Json& step : list(report, "steps")) {
    most = std::max(most, integer(step, kind).value_or(0));
  }
  return Bytes{most};
}

const Json& RehearsedWay::worst() const {
  return *std::ranges::max_element(ranks, {}, [](const Json& report) {
    return std::pair{!list(report, "steps").empty(), peak_of(report, "allocated").count()};
  });
}

bool RehearsedWay::out_of_memory() const {
  return std::ranges::any_of(
      ranks, [](const Json& report) { return text(report, "uncaught") == "out of memory"; });
}

Result<RehearsedWay> run_rehearsal(const Rehearsal& rehearsal, const std::string& way, Bytes memory,
                                   const std::string& budget) {
  std::array<int, 2> failed{};
  if (pipe2(failed.data(), O_CLOEXEC) != 0) {
    return invalid_argument(std::string("no pipe: ") + std::strerror(errno));
  }
  const PassedSignals passed;
  const pid_t child = fork();
  if (child == 0) {
    set_environment(rehearsal, way, memory, budget);
    become(rehearsal.program, failed[1]);
  }
  close(failed[1]);
  if (child < 0) {
    close(failed[0]);
    return invalid_argument(std::string("no process: ") + std::strerror(errno));
  }
  setpgid(child, child);  // as the child does: whoever comes first
  g_group = child;
  int why = 0;
  ssize_t told = 0;
  while ((told = read(failed[0], &why, sizeof why)) < 0 && errno == EINTR) {
  }
  close(failed[0]);
  RehearsedWay seen;
  wait_for(child, seen);
  if (told == sizeof why) {
    return invalid_argument("cannot start '" + rehearsal.program[0] + "': " + std::strerror(why));
  }
  seen.ranks = read_reports(rehearsal.folder, way);
  return seen;
}

}  // namespace pudica::cli
