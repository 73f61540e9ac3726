// How requests reach the daemon: a port, so that tests answer them without a socket.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "inspect/http_client.h"
#include "pudica/result.h"

namespace pudica {

// One request at a time; stop() from any thread. May throw: whoever calls contains it.
class DaemonTransport {
 public:
  virtual ~DaemonTransport() = default;
  // As HttpClient.
  virtual Result<HttpReply> get(const std::string& target, std::chrono::milliseconds timeout) = 0;
  virtual Result<HttpReply> post(const std::string& target, const std::string& json_body,
                                 std::chrono::milliseconds timeout) = 0;
  virtual void stop() = 0;
};

using TransportMaker = std::function<std::unique_ptr<DaemonTransport>()>;

// HTTP over the UNIX socket.
std::unique_ptr<DaemonTransport> make_socket_transport(const std::string& socket_path);

}  // namespace pudica
