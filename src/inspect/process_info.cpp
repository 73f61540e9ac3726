#include "inspect/process_info.h"

#include <fstream>
#include <unistd.h>

#include "inspect/user_names.h"

namespace pudica {

std::string user_name() { return user_name(geteuid()); }

std::vector<std::string> process_arguments() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::string command_line(const std::vector<std::string>& words, std::size_t most) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  if (out.size() > most) out.resize(most);
  return out;
}

}  // namespace pudica
