// What every benchmark shares: arguments, and cases reported as median, p99 and spread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pudica::bench {

struct Arguments {
  std::int64_t calls = 0;  // of one case
  std::string json_path;   // empty: no file
  std::vector<std::string> command;
};

// Reads [--calls N] [--json FILE]; `calls` is the default. Bad input ends the process with 2.
Arguments parse_arguments(int argc, char** argv, std::int64_t calls);

// Fewer values have no 99th percentile that is not simply the largest.
constexpr std::size_t kLeastForP99 = 100;

// Cases in order. Quantiles are nearest-rank values that were seen; the spread is the distance
// between the quartiles over the median. Each value is one sample: nothing is taken the best of.
class Report {
 public:
  Report(std::string benchmark, std::uint64_t seed);

  // Requires: values not empty.
  void add(std::string name, std::string unit, std::vector<double> values);
  // Prints the table, writes the JSON ("pudica.bench/1") where asked to. Returns the exit code.
  [[nodiscard]] int write(const Arguments& arguments) const;

 private:
  struct Case {
    std::string name;
    std::string unit;
    std::vector<double> sorted;
  };

  std::string benchmark_;
  std::uint64_t seed_;
  std::vector<Case> cases_;
};

}  // namespace pudica::bench
