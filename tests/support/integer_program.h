// A mixed-integer program, solved by CBC where that is installed: a judge that shares no code and
// no idea with the planner.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace pudica::testing {

// Minimises a sum over variables in [0, 1] under rows of `at most`. CBC's own process reads it as a
// file in the LP format; nothing of CBC is linked.
class IntegerProgram {
 public:
  enum class Kind : std::uint8_t { kBinary, kContinuous };
  struct Term {
    std::int64_t factor = 0;
    int variable = 0;
  };

  static bool solver_is_installed() {
    return std::system("command -v cbc > /dev/null 2>&1") == 0;  // NOLINT(concurrency-mt-unsafe)
  }

  int add_variable(std::int64_t cost, Kind kind) {
    costs_.push_back(cost);
    kinds_.push_back(kind);
    return static_cast<int>(costs_.size()) - 1;
  }
  // sum of terms <= most
  void add_row(std::vector<Term> terms, std::int64_t most) {
    if (!terms.empty()) rows_.push_back({std::move(terms), most});
  }
  void fix(int variable, std::int64_t value) {
    add_row({{1, variable}}, value);
    add_row({{-1, variable}}, -value);
  }

  // The least sum; none: infeasible, or CBC failed.
  [[nodiscard]] std::optional<double> solve() const {
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("pudica_cbc_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    write(folder / "program.lp");
    const std::string command = "cbc '" + (folder / "program.lp").string() +
                                "' ratioGap 0 allowableGap 0 seconds 120 solve solution '" +
                                (folder / "solution").string() + "' > /dev/null 2>&1";
    const bool ran = std::system(command.c_str()) == 0;  // NOLINT(concurrency-mt-unsafe)
    std::ifstream solution(folder / "solution");
    std::string line;
    std::getline(solution, line);
    solution.close();
    std::filesystem::remove_all(folder);
    const std::string expected = "Optimal - objective value ";
    if (!ran || line.compare(0, expected.size(), expected) != 0) return std::nullopt;
    return std::strtod(line.c_str() + expected.size(), nullptr);
  }

 private:
  struct Row {
    std::vector<Term> terms;
    std::int64_t most = 0;
  };

  static void write_terms(std::ofstream& out, const std::vector<Term>& terms) {
    for (const Term& term : terms) {
      out << '\n'
          << (term.factor < 0 ? " - " : " + ") << std::abs(term.factor) << " x" << term.variable;
    }
  }

  void write(const std::filesystem::path& path) const {
    std::ofstream out(path);
    std::vector<Term> objective;
    for (std::size_t v = 0; v < costs_.size(); ++v) {
      objective.push_back({costs_[v], static_cast<int>(v)});
    }
    out << "Minimize\n obj:";
    write_terms(out, objective);
    out << "\nSubject To\n";
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      out << " r" << r << ':';
      write_terms(out, rows_[r].terms);
      out << " <= " << rows_[r].most << '\n';
    }
    out << "Bounds\n";
    for (std::size_t v = 0; v < costs_.size(); ++v) out << " 0 <= x" << v << " <= 1\n";
    out << "Integers\n";
    for (std::size_t v = 0; v < costs_.size(); ++v) {
      if (kinds_[v] == Kind::kBinary) out << " x" << v << '\n';
    }
    out << "End\n";
  }

  std::vector<std::int64_t> costs_;
  std::vector<Kind> kinds_;
  std::vector<Row> rows_;
};

}  // namespace pudica::testing
