#include "cli/training_command.h"

#include <cstdlib>
#include <filesystem>
#include <ostream>

#include "config/config.h"

namespace pudica::cli {

void prepend_environment(const char* name, const std::string& path) {
  const auto before = process_environment(name);
  const bool filled = before && !before->empty();
  setenv(name, (path + (filled ? ":" + *before : std::string())).c_str(), 1);
}

std::string budget_of_training(const BudgetSetting& budget) {
  BudgetSetting meant = budget;
  if (meant.kind == BudgetSetting::Kind::kFraction) meant.kind = BudgetSetting::Kind::kBetween;
  return to_string(meant);
}

std::string installed_beside(const std::string& below) {
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return {};
  const auto path = program.parent_path().parent_path() / below;
  return std::filesystem::exists(path, failed) ? path.string() : std::string();
}

std::string option_against_pythonpath(const std::vector<std::string>& program) {
  const auto name = std::filesystem::path(program.front()).filename().string();
  if (!name.starts_with("python") && !name.starts_with("pypy")) return {};
  for (std::size_t i = 1; i < program.size(); ++i) {
    const std::string& word = program[i];
    if (word == "-X" || word == "-W") {
      ++i;
      continue;
    }
    if (!word.starts_with("-") || word.starts_with("--") || word == "-") return {};
    const std::string letters = word.substr(1, word.find_first_of("mcXW", 1) - 1);
    const auto at = letters.find_first_of("IES");
    if (at != std::string::npos) return std::string("-") + letters[at];
    if (letters.size() + 1 < word.size()) return {};  // -m, -c: what follows is the program's
  }
  return {};
}

void attach_by_environment(Session& session) {
  const auto given = process_environment("PUDICA_ATTACH");
  if (given && *given != "1") return;
  if (const auto option = option_against_pythonpath(session.arguments.program); !option.empty()) {
    session.err << "pudica: python " << option
                << " looks at no PYTHONPATH or site: the command runs without pudica unless it "
                   "attaches by itself\n";
    return;
  }
  const std::string startup = installed_beside("share/pudica/startup");
  if (startup.empty()) {
    session.err << "pudica: no share/pudica/startup beside this program: the command runs without "
                   "pudica unless it attaches by itself\n";
    return;
  }
  setenv("PUDICA_ATTACH", "1", 1);
  prepend_environment("PYTHONPATH", startup);
}

}  // namespace pudica::cli
