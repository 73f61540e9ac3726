// simulated_runs: many runs without torch that report to one daemon, for load and kill tests.
//
// Prints one line of JSON a run at its end, in the order of the runs. SIGTERM ends them early, and
// so does the end of the input of paced ones: after as many steps each.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "inspect/socket_path.h"
#include "support/simulated_run.h"

namespace {

volatile std::sig_atomic_t stopping = 0;

using Clock = std::chrono::steady_clock;
using pudica::testing::SimulatedRun;
using pudica::testing::SimulatedRunOptions;

struct Arguments {
  int runs = 1;
  double steps_per_second = 20;
  double seconds = 10;
  std::int64_t steps = 0;
  std::string socket;
  std::string group;
  std::string fingerprint;
  std::uint64_t seed = 1;
  double budget_share = 0.5;
  std::int64_t wait_ms = 0;
  std::string times;
  bool no_report = false;
  bool paced = false;
};

Arguments parse(int argc, char** argv) {
  Arguments out;
  CLI::App app("Simulated training runs that report to pudicad");
  app.add_option("--runs", out.runs, "how many")->check(CLI::Range(1, 10000));
  app.add_option("--steps-per-second", out.steps_per_second, "of each run; 0: without a pause");
  app.add_option("--seconds", out.seconds, "how long, where --steps is not given");
  app.add_option("--steps", out.steps, "of each run; 0: as many as --seconds gives");
  app.add_option("--socket", out.socket, "the daemon's");
  app.add_option("--group", out.group, "budget group");
  app.add_option("--fingerprint", out.fingerprint, "of the learned state; empty: not pooled");
  app.add_option("--seed", out.seed, "of the first run; the others count up");
  app.add_option("--budget-share", out.budget_share, "from the floor (0) to keeping all (1)");
  app.add_option("--wait-ms", out.wait_ms, "for the registration, before the first step");
  app.add_option("--times", out.times,
                 "file for the steps' times: monotonic second, seconds taken");
  app.add_flag("--no-report", out.no_report, "trains without a reporter");
  app.add_flag("--paced", out.paced,
               "a step of each run for each byte of the input, then an empty line");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  out.socket = pudica::daemon_socket_path(out.socket);
  return out;
}

nlohmann::json line_of(SimulatedRun& run, double slowest_call) {
  const auto status = run.reporter().status();
  return {{"id", status.id},
          {"steps", run.steps()},
          {"digest", std::to_string(run.digest())},
          {"budget_bytes", run.budget().count()},
          {"floor_bytes", run.floor().count()},
          {"keep_all_bytes", run.keep_all().count()},
          {"largest_peak_bytes", run.largest_peak().count()},
          {"learning_steps", run.controller().snapshot().counters.learning_steps},
          {"dropped", status.dropped},
          {"reconnects", status.reconnects},
          {"failures", status.failures},
          {"slowest_step_seconds", slowest_call}};
}

std::vector<std::unique_ptr<SimulatedRun>> start_runs(const Arguments& arguments,
                                                      std::int64_t steps) {
  std::vector<std::unique_ptr<SimulatedRun>> runs;
  for (int i = 0; i < arguments.runs; ++i) {
    SimulatedRunOptions options;
    options.socket_path = arguments.socket;
    options.name = "simulated-" + std::to_string(i);
    options.group = arguments.group;
    options.fingerprint = arguments.fingerprint;
    options.seed = arguments.seed + static_cast<std::uint64_t>(i);
    options.budget_share = arguments.budget_share;
    options.steps_total = steps;
    options.reports = !arguments.no_report;
    runs.push_back(std::make_unique<SimulatedRun>(options));
  }
  const auto deadline = Clock::now() + std::chrono::milliseconds(arguments.wait_ms);
  for (auto& run : runs) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() > 0) run->reporter().wait_registered(left);
  }
  return runs;
}

void write_times(const std::string& path, const std::vector<std::pair<double, double>>& times) {
  if (path.empty()) return;
  std::ofstream file(path);
  file.precision(9);
  file << std::fixed;
  for (const auto& [when, took] : times) file << when << ' ' << took << '\n';
}

// Lets the runs make their steps in turn, evenly over time or as the input says.
class Pace {
 public:
  explicit Pace(const Arguments& arguments) : is_paced_(arguments.paced) {
    const double per_second = arguments.steps_per_second * arguments.runs;
    if (!is_paced_ && per_second > 0) between_ = std::chrono::duration<double>(1.0 / per_second);
  }

  // Before a step of each run. False: there is to be none.
  bool begin_round() {
    if (stopping != 0) return false;
    return !is_paced_ || std::getchar() != EOF;
  }
  void end_round() const {
    if (!is_paced_) return;
    std::putchar('\n');
    std::fflush(stdout);
  }
  // Before step `number` of all.
  void wait(std::int64_t number) const {
    if (between_.count() <= 0) return;
    const auto after = static_cast<double>(number) * between_;
    std::this_thread::sleep_until(begin_ + std::chrono::duration_cast<Clock::duration>(after));
  }

 private:
  Clock::time_point begin_ = Clock::now();
  bool is_paced_;
  std::chrono::duration<double> between_{0};
};

int run(const Arguments& arguments) {
  const auto by_time = static_cast<std::int64_t>(arguments.seconds * arguments.steps_per_second);
  const std::int64_t steps = arguments.steps > 0 ? arguments.steps : by_time;
  auto runs = start_runs(arguments, steps);
  std::vector<double> slowest(runs.size());
  std::vector<std::pair<double, double>> times;
  Pace pace(arguments);
  std::int64_t number = 0;
  for (std::int64_t round = 0; round < steps && pace.begin_round(); ++round) {
    for (std::size_t at = 0; at < runs.size(); ++at) {
      pace.wait(number++);
      const auto before = Clock::now();
      runs[at]->step();
      const std::chrono::duration<double> took = Clock::now() - before;
      slowest[at] = std::max(slowest[at], took.count());
      const std::chrono::duration<double> when = before.time_since_epoch();
      if (!arguments.times.empty()) times.emplace_back(when.count(), took.count());
    }
    pace.end_round();
  }
  write_times(arguments.times, times);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    auto line = line_of(*runs[i], slowest[i]);
    line["end_known"] = runs[i]->finish("ok");
    std::printf("%s\n", line.dump().c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGTERM, [](int) { stopping = 1; });
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "simulated_runs: %s\n", error.what());
    return 1;
  }
}
