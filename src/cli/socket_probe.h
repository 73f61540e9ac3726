// What stands at a socket's path, seen from outside.
#pragma once

#include <optional>
#include <string>

#include "inspect/socket_trust.h"

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
  std::string directory_fault;          // as SocketTrust says
  std::string socket_fault;             // of its owner or of who listens
  std::string sharing_group;            // that may use the socket too; empty: none
  std::optional<int> listener_process;  // the process that listens
  std::string listener;                 // its command and user
};

// Connects once and sends nothing.
SocketProbe probe_socket(const std::string& path, const SocketTrust& trust);

}  // namespace pudica::cli
