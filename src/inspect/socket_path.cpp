#include "inspect/socket_path.h"

#include <cstdlib>
#include <unistd.h>

namespace pudica {

std::string daemon_socket_path(const std::string& argument, const Environment& environment,
                               unsigned user_id) {
  if (!argument.empty()) return argument;
  const auto named = environment("PUDICA_SOCKET");
  if (named && !named->empty()) return *named;
  const auto runtime = environment("XDG_RUNTIME_DIR");
  if (runtime && !runtime->empty()) return *runtime + "/pudica/pudicad.sock";
  if (user_id == 0) return "/run/pudica/pudicad.sock";
  return "/tmp/pudica-" + std::to_string(user_id) + "/pudicad.sock";
}

std::string daemon_socket_path(const std::string& argument) {
  return daemon_socket_path(
      argument,
      [](const std::string& name) -> std::optional<std::string> {
        const char* value = std::getenv(name.c_str());
        if (value == nullptr) return std::nullopt;
        return value;
      },
      geteuid());
}

}  // namespace pudica
