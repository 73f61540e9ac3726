// What a process can say of itself to the daemon.
#pragma once

#include <string>
#include <vector>

namespace pudica {

// The name of the user that this process runs as, else the number.
std::string user_name();

// The program and its arguments; empty where the system does not tell.
std::vector<std::string> process_arguments();

// The words as one line, at most `most` characters.
std::string command_line(const std::vector<std::string>& words, std::size_t most = 2048);

}  // namespace pudica
