// `pudica completion`: scripts for shells, made from the declared command line.
#include <algorithm>
#include <ostream>
#include <string>

#include "cli/commands.h"

namespace pudica::cli {
namespace {

// What completes runs: names and ids of live runs, by the tab-separated output. A daemon that hangs
// holds nobody up.
constexpr const char* kRuns =
    "pudica --timeout 0.2 status 2>/dev/null | tail -n +2 | cut -f1,2 | tr '\\t' '\\n'";

std::string option_names(const CommandWords& words) {
  std::string names;
  for (const auto& option : words.options) names += (names.empty() ? "" : " ") + option.name;
  return names;
}

// A command's options, and those that stand with every command.
CommandWords with_general(CommandWords words, const CommandWords& general) {
  for (const CommandWords::Option& option : general.options) {
    const bool known = std::ranges::count(words.options, option.name, &CommandWords::Option::name);
    if (!known) words.options.push_back(option);
  }
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

// Those that have commands of their own.
std::vector<const CommandWords*> parents(const std::vector<CommandWords>& commands) {
  std::vector<const CommandWords*> out;
  for (std::size_t i = 1; i < commands.size(); ++i) {
    if (!commands[i].subcommands.empty()) out.push_back(&commands[i]);
  }
  return out;
}

// "check show" of "config".
std::string inner_of(const std::vector<CommandWords>& commands, const std::string& parent) {
  for (const CommandWords& words : commands) {
    if (words.name == parent) return joined(words.subcommands);
  }
  return {};
}

// "$command == config || $command == models".
std::string shell_either(const std::vector<const CommandWords*>& commands) {
  std::string out;
  for (const CommandWords* const words : commands) {
    out += (out.empty() ? "$command == " : " || $command == ") + words->name;
  }
  return out;
}

// Single quotes of a shell.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Of the first positional argument that words can complete: "run", "file", "shell" or nothing.
std::string completes(const CommandWords& words) {
  for (const std::string& name : words.positionals) {
    if (name == "SHELL") return "shell";
    if (name == "RUN|FILE") return "both";
    if (name == "RUN") return "run";
    if (name == "FILE") return "file";
  }
  return {};
}

std::string bash_case(const CommandWords& words) {
  std::string body = "    " + shell_quoted(words.name) + ") words=" +
                     shell_quoted(option_names(words) + " " + joined(words.subcommands));
  const std::string what = completes(words);
  if (what == "shell") body += "; words+=' bash zsh fish'";
  if (what == "run" || what == "both") body += "; runs=1";
  if (what == "file" || what == "both") body += "; files=1";
  return body + " ;;\n";
}

// What --device takes, command by command.
std::string device_cases(const std::vector<CommandWords>& commands) {
  std::string out;
  for (const CommandWords& words : commands) {
    for (const auto& option : words.options) {
      if (option.choices.empty()) continue;
      out += "      " + words.name + ") words=" + shell_quoted(option.choices) + " ;;\n";
    }
  }
  return out;
}

void print_bash(std::ostream& out, const std::vector<CommandWords>& commands) {
  std::string file_options;
  std::string value_options;
  for (const CommandWords& words : commands) {
    for (const auto& option : words.options) {
      std::string& list = option.file ? file_options : value_options;
      if (option.takes_value && (list + "|").find(option.name + "|") == std::string::npos) {
        list += (list.empty() ? "" : "|") + option.name;
      }
    }
  }
  out << "# bash completion of pudica\n"
         "_pudica() {\n"
         "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
         "  local command= words= runs= files= skip= i word\n"
         "  COMPREPLY=()\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    word=\"${COMP_WORDS[i]}\"\n"
         "    if [[ $skip ]]; then skip=; continue; fi\n"
         "    case \"$word\" in\n"
         "      --) return ;;\n"
      << "      " << file_options << '|' << value_options
      << ") skip=1 ;;\n"
         "      -*) ;;\n"
      << "      *) if [[ ! $command || " << shell_either(parents(commands))
      << " ]]; then\n"
         "           command=\"${command:+$command }$word\"; fi ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$prev\" in\n"
      << "    " << file_options
      << ") COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n"
         "    --device) case \"$command\" in\n"
      << device_cases(commands)
      << "    esac; COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); return ;;\n"
         "    "
      << value_options
      << ") return ;;\n"
         "  esac\n"
         "  case \"$command\" in\n"
      << "    '') words="
      << shell_quoted(option_names(commands[0]) + " " + joined(commands[0].subcommands)) << " ;;\n";
  for (std::size_t i = 1; i < commands.size(); ++i) {
    out << bash_case(with_general(commands[i], commands[0]));
  }
  out << "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "  if [[ $runs ]]; then\n"
         "    local IFS=$'\\n'\n"
         "    while IFS= read -r word; do\n"
         "      [[ $word == \"$cur\"* ]] && COMPREPLY+=(\"$(printf '%q' \"$word\")\")\n"
      << "    done < <(" << kRuns
      << ")\n"
         "  fi\n"
         "  if [[ $files ]]; then COMPREPLY+=($(compgen -f -- \"$cur\")); fi\n"
         "}\n"
         "complete -o filenames -F _pudica pudica\n";
}

// Descriptions in _arguments end at a bracket or a colon.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_arguments(const CommandWords& words) {
  std::string out = "_arguments";
  for (const auto& option : words.options) {
    std::string spec = option.name + "[" + zsh_text(option.description) + "]";
    if (option.takes_value) {
      spec += !option.choices.empty() ? ":value:(" + option.choices + ")"
              : option.file           ? ":file:_files"
                                      : ":value:";
    }
    out += " \\\n        " + shell_quoted(spec);
  }
  std::size_t place = 1;
  for (const std::string& name : words.positionals) {
    const std::string at = std::to_string(place++);
    const std::string action = name == "SHELL"      ? "(bash zsh fish)"
                               : name == "FILE"     ? "_files"
                               : name == "RUN"      ? "_pudica_runs"
                               : name == "RUN|FILE" ? "_pudica_runs_or_files"
                                                    : " ";
    out += " \\\n        " + shell_quoted(at + ":" + zsh_text(name) + ":" + action);
  }
  return out;
}

void print_zsh(std::ostream& out, const std::vector<CommandWords>& commands) {
  out << "#compdef pudica\n"
         "# zsh completion of pudica\n"
         "_pudica_runs() {\n"
      << "  local -a runs; runs=(\"${(@f)$(" << kRuns
      << ")}\")\n"
         "  compadd -a runs\n"
         "}\n"
         "_pudica_runs_or_files() { _pudica_runs; _files; }\n"
         "_pudica() {\n"
         "  local -a commands\n"
         "  commands=(\n";
  for (const std::string& name : commands[0].subcommands) {
    for (const CommandWords& words : commands) {
      if (words.name == name) out << "    " << shell_quoted(name + ":" + words.description) << '\n';
    }
  }
  out << "  )\n"
         "  local command=${words[(r)("
      <<
      [&] {
        std::string names;
        for (const std::string& name : commands[0].subcommands) {
          names += (names.empty() ? "" : "|") + name;
        }
        return names;
      }()
      << ")]}\n"
         "  if [[ -z $command || $words[CURRENT] == $command ]]; then\n"
         "    if [[ $PREFIX != -* ]]; then _describe command commands; return; fi\n"
         "    "
      << zsh_arguments(commands[0])
      << "\n"
         "    return\n"
         "  fi\n"
         "  local at=${words[(i)$command]}\n"
         "  words=(\"${(@)words[at,-1]}\"); (( CURRENT -= at - 1 ))\n"
         "  case $command in\n";
  for (const CommandWords* const parent : parents(commands)) {
    const std::string inner = joined(parent->subcommands);
    out << "    " << parent->name << ") if (( CURRENT == 2 )); then compadd " << inner
        << "; [[ $words[2] == -* ]] || return; fi\n"
        << "      if [[ ' " << inner << " ' == *\" $words[2] \"* ]]; then\n"
        << "        command=\"" << parent->name
        << " $words[2]\"; shift words; (( CURRENT-- ))\n"
           "      fi ;;\n";
  }
  out << "  esac\n"
         "  case $command in\n";
  for (std::size_t i = 1; i < commands.size(); ++i) {
    out << "    " << shell_quoted(commands[i].name) << ") "
        << zsh_arguments(with_general(commands[i], commands[0])) << " ;;\n";
  }
  out << "  esac\n"
         "}\n"
         "if [[ $funcstack[1] == _pudica ]]; then _pudica \"$@\"; else compdef _pudica pudica; "
         "fi\n";
}

void fish_options(std::ostream& out, const CommandWords& words, const std::string& when) {
  for (const auto& option : words.options) {
    if (!option.name.starts_with("--")) continue;
    out << "complete -c pudica " << when << " -l " << option.name.substr(2);
    if (option.takes_value) out << (option.file ? " -rF" : " -x");
    if (!option.choices.empty()) out << " -a " << shell_quoted(option.choices);
    out << " -d " << shell_quoted(option.description) << '\n';
  }
}

void print_fish(std::ostream& out, const std::vector<CommandWords>& commands) {
  out << "# fish completion of pudica\n"
         "complete -c pudica -f\n";
  const std::string names = joined(commands[0].subcommands);
  fish_options(out, commands[0], "");
  for (std::size_t i = 1; i < commands.size(); ++i) {
    const CommandWords& words = commands[i];
    const auto space = words.name.find(' ');
    const std::string last = space == std::string::npos ? words.name : words.name.substr(space + 1);
    const std::string parent = space == std::string::npos ? "" : words.name.substr(0, space);
    const std::string before = parent.empty() ? "not __fish_seen_subcommand_from " + names
                                              : "__fish_seen_subcommand_from " + parent +
                                                    "; and not __fish_seen_subcommand_from " +
                                                    inner_of(commands, parent);
    out << "complete -c pudica -n " << shell_quoted(before) << " -a " << last << " -d "
        << shell_quoted(words.description) << '\n';
    const std::string inside =
        (parent.empty() ? "" : "__fish_seen_subcommand_from " + parent + "; and ") +
        std::string("__fish_seen_subcommand_from ") + last;
    fish_options(out, words, "-n " + shell_quoted(inside));
    const std::string what = completes(words);
    if (what == "run" || what == "both") {
      out << "complete -c pudica -n " << shell_quoted(inside) << " -a "
          << shell_quoted("(" + std::string(kRuns) + ")") << '\n';
    }
    if (what == "file" || what == "both")
      out << "complete -c pudica -n " << shell_quoted(inside) << " -F\n";
    if (what == "shell") {
      out << "complete -c pudica -n " << shell_quoted(inside) << " -a 'bash zsh fish'\n";
    }
  }
}

}  // namespace

int completion_command(Session& session) {
  const auto commands = command_words();
  if (session.arguments.shell == "bash") {
    print_bash(session.out, commands);
  } else if (session.arguments.shell == "zsh") {
    print_zsh(session.out, commands);
  } else {
    print_fish(session.out, commands);
  }
  return kExitDone;
}

}  // namespace pudica::cli
