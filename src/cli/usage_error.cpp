#include "cli/usage_error.h"

#include <algorithm>
#include <cctype>

#include <CLI/CLI.hpp>

#include "base/nearest_name.h"
#include "pudica/bytes.h"

namespace pudica::cli {

std::vector<std::string> names_of(CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
  return names;
}

std::vector<CLI::App*> chosen(CLI::App& app) {
  std::vector<CLI::App*> path;
  for (CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    path.push_back(at);
  }
  return path;
}

namespace {

// The long options that may be given beside these commands.
std::vector<std::string> options_of(CLI::App& app, const std::vector<CLI::App*>& path) {
  std::vector<std::string> names;
  const auto add = [&names](CLI::App* from) {
    for (const CLI::Option* option : from->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  };
  for (CLI::App* sub : path) add(sub);
  add(&app);
  return names;
}

// "80 MiB" in two words, as quantities are shown.
std::string hint_of_units(const std::vector<std::string>& arguments) {
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const bool unit = parse_bytes("1" + arguments[i]) && !arguments[i].empty() &&
                      std::isalpha(static_cast<unsigned char>(arguments[i].front())) != 0;
    const std::string whole = arguments[i - 1] + arguments[i];
    if (unit && parse_bytes(whole)) return "; write " + whole + " as one word";
  }
  return {};
}

// For bytes in two words, else for a misspelt option, else for a misspelt command.
std::string hint_for(CLI::App& app, const std::vector<std::string>& arguments) {
  if (const std::string hint = hint_of_units(arguments); !hint.empty()) return hint;
  const auto path = chosen(app);
  const std::vector<std::string> options = options_of(app, path);
  for (const std::string& word : arguments) {
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with("--") || std::ranges::count(options, name) > 0) continue;
    return did_you_mean(name, options);
  }
  CLI::App& last = path.empty() ? app : *path.back();
  const std::vector<std::string> commands = names_of(last);
  if (commands.empty()) return {};
  const auto given = [&last](const std::string& word) { return word == last.get_name(); };
  const auto begin =
      path.empty() ? arguments.begin() : std::next(std::ranges::find_if(arguments, given));
  const auto first = std::find_if(begin, arguments.end(),
                                  [](const std::string& word) { return !word.starts_with("-"); });
  return first == arguments.end() ? std::string() : did_you_mean(*first, commands);
}

}  // namespace

Error usage_error(CLI::App& app, const std::vector<std::string>& arguments,
                  const std::string& what) {
  std::string command = "pudica";
  for (const CLI::App* sub : chosen(app)) command += " " + sub->get_name();
  return invalid_argument(what + hint_for(app, arguments) + " (`" + command +
                          " --help` lists what is expected)");
}

}  // namespace pudica::cli
