// What stands at a socket's path, seen from outside.
#pragma once

#include <optional>
#include <string>

namespace pudica::cli {

struct SocketProbe {
  enum class State { kListening, kMissing, kNoDirectory, kNotASocket, kRefused, kDenied, kOther };

  State state = State::kOther;
  std::string problem;    // in words, of kOther
  std::string directory;  // that holds it
  std::string owner;      // of the socket, empty: unknown
  unsigned mode = 0;      // permission bits of the socket
  unsigned directory_mode = 0;
  std::string directory_owner;
  bool directory_foreign = false;       // belongs neither to this user nor to root
  std::optional<int> listener_process;  // the process that listens
  std::string listener;                 // its command and user
};

// Connects once and sends nothing.
SocketProbe probe_socket(const std::string& path);

// The name of a user, else its number.
std::string user_name(unsigned user_id);

}  // namespace pudica::cli
