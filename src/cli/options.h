// The command line: which command with which arguments.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pudica/result.h"

namespace pudica::cli {

// The arguments of all commands; a command reads its own.
struct Arguments {
  std::string command;  // "status", "config check"
  std::string socket;   // empty: the usual place
  bool json = false;
  std::string format;  // of each row (cli/row_format.h); empty: none
  bool no_color = false;
  bool no_trunc = false;       // tables as wide as they are
  double timeout_seconds = 0;  // for the daemon; 0: as it takes (cli/daemon.h)

  std::string run;    // empty: the only one
  std::string shape;  // "12x384" or "batch=12,source=384"
  std::string budget;
  std::string group;
  std::string fingerprint;
  std::string file;
  std::string out;
  std::string config;
  std::string policy = "pudica";
  std::string device = "cpu";
  std::string card;    // of `rehearse`: empty: the usual one
  std::string memory;  // of `rehearse`: empty: the card's
  int most_steps = 50;
  int devices = 1;
  std::string shell;
  double interval_seconds = 1;
  int days = 0;
  double wait_seconds = 30;  // of `budget`: for the step; 0: not at all
  bool dry_run = false;
  bool all = false;
  bool once = false;
  bool steps = false;
  std::vector<std::string> program;  // of `run` and `rehearse`
};

struct CommandLine {
  Arguments arguments;
  std::string print;  // help or version: print it and be done
};

// Errors: kInvalidArgument naming what was seen and what was expected.
Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments);

// What can be completed, from the same declarations.
struct CommandWords {
  std::string name;         // "status"
  std::string description;  // in one line
  // Options with their meaning, "--json"; those that take a value have `takes_value`.
  struct Option {
    std::string name;
    std::string description;
    bool takes_value = false;
    bool file = false;
    std::string choices;  // of the value, with blanks between; empty: anything
  };
  std::vector<Option> options;
  std::vector<std::string> subcommands;
  // What its arguments are, in order: "run", "shape", "file", "shell", "bytes", "name".
  std::vector<std::string> positionals;
};
std::vector<CommandWords> command_words();

}  // namespace pudica::cli
