#include "bench/harness.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "inspect/origin.h"

namespace pudica::bench {
namespace {

double quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

nlohmann::json p99_of(const std::vector<double>& sorted) {
  return sorted.size() < kLeastForP99 ? nlohmann::json() : nlohmann::json(quantile(sorted, 0.99));
}

[[noreturn]] void usage(const char* program) {
  std::fprintf(stderr, "usage: %s [--calls N] [--json FILE]   (N: of one case, at least 1)\n",
               program);
  std::exit(2);
}

}  // namespace

Arguments parse_arguments(int argc, char** argv, std::int64_t calls) {
  Arguments arguments{calls, {}, {argv, argv + argc}};
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    if (i + 1 >= argc) usage(argv[0]);
    const std::string_view value = argv[i + 1];
    if (option == "--json") {
      arguments.json_path = value;
    } else if (option == "--calls") {
      const auto [rest, status] =
          std::from_chars(value.data(), value.data() + value.size(), arguments.calls);
      if (status != std::errc() || rest != value.data() + value.size() || arguments.calls < 1) {
        usage(argv[0]);
      }
    } else {
      usage(argv[0]);
    }
  }
  return arguments;
}

Report::Report(std::string benchmark, std::uint64_t seed)
    : benchmark_(std::move(benchmark)), seed_(seed) {}

void Report::add(std::string name, std::string unit, std::vector<double> values) {
  std::ranges::sort(values);
  cases_.push_back({std::move(name), std::move(unit), std::move(values)});
}

int Report::write(const Arguments& arguments) const {
  nlohmann::json cases = nlohmann::json::array();
  std::printf("%s, seed %llu\n", benchmark_.c_str(), static_cast<unsigned long long>(seed_));
  std::printf("%-52s %8s %12s %12s %12s %8s\n", "case", "unit", "median", "p99", "max", "spread");
  for (const Case& item : cases_) {
    const double median = quantile(item.sorted, 0.5);
    const double quartiles = quantile(item.sorted, 0.75) - quantile(item.sorted, 0.25);
    const double spread = median == 0 ? 0 : std::abs(quartiles / median);
    const nlohmann::json p99 = p99_of(item.sorted);
    char p99_text[32] = "-";
    if (!p99.is_null()) std::snprintf(p99_text, sizeof p99_text, "%.4g", p99.get<double>());
    std::printf("%-52s %8s %12.4g %12s %12.4g %6.1f %%\n", item.name.c_str(), item.unit.c_str(),
                median, p99_text, item.sorted.back(), 100 * spread);
    cases.push_back({{"name", item.name},
                     {"unit", item.unit},
                     {"calls", item.sorted.size()},
                     {"median", median},
                     {"quartiles", {quantile(item.sorted, 0.25), quantile(item.sorted, 0.75)}},
                     {"p99", p99},
                     {"min", item.sorted.front()},
                     {"max", item.sorted.back()},
                     {"spread", spread}});
  }
  if (arguments.json_path.empty()) return 0;
  nlohmann::json out = describe_origin(arguments.command);
  out["schema"] = "pudica.bench/1";
  out["benchmark"] = benchmark_;
  out["machine"] = describe_machine();
  out["versions"] = describe_versions();
  out["seed"] = seed_;
  out["cases"] = cases;
  std::ofstream file(arguments.json_path);
  file << out.dump(2) << '\n' << std::flush;
  if (file.good()) return 0;
  std::fprintf(stderr, "%s: cannot write %s\n", benchmark_.c_str(), arguments.json_path.c_str());
  return 1;
}

}  // namespace pudica::bench
