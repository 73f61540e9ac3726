#include "inspect/process_info.h"

#include <array>
#include <fstream>
#include <pwd.h>
#include <unistd.h>

namespace pudica {

std::string user_name() {
  const uid_t user = geteuid();
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return found->pw_name;
  }
  return std::to_string(user);
}

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
