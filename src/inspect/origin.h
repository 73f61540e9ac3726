// Where a measured result comes from: the code that was built, the machine, and what the process's
// environment says of allocator, threads and instruction sets. scripts/lib/origin.py writes the
// same keys for results that Python makes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace pudica {

// Of the tree that was built.
struct BuildRevision {
  std::string revision;   // the commit; empty: no repository was there
  bool modified = false;  // the tree had changes beside bench/results
};

BuildRevision build_revision();

// cpu, cores, memory_bytes, instruction_set, system, load_1min; null where the system does not
// tell.
nlohmann::json describe_machine();

// {compiler}. Programs add what else they are made of.
nlohmann::json describe_versions();

// What measurements run under, for all programs alike: threads that wait sleep instead of burning
// the clock that is read, and the C library keeps its pages (measured: 10 % of a step).
// scripts/lib/measuring.env has the same for what scripts start.
std::vector<std::pair<std::string, std::string>> measuring_environment();

// revision, modified, date, command and environment. `command`: the words of the command line; the
// path of the source tree is left out of it. `given` are variables that a child was given, which
// win over this process's own.
nlohmann::json describe_origin(const std::vector<std::string>& command,
                               const std::vector<std::pair<std::string, std::string>>& given = {});

}  // namespace pudica
