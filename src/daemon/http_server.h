// HTTP/1.1 on listening sockets: bounds, and the way from a request to its endpoint and back.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/api_reply.h"
#include "daemon/listener.h"
#include "pudica/result.h"

namespace pudica::daemon {

struct HttpServerOptions {
  std::size_t connections = 1024;  // on each socket
  std::size_t body_bytes = std::size_t{4} << 20U;
  double head_seconds = 5;           // for the head of a request
  double stall_seconds = 5;          // without a byte
  double request_seconds = 30;       // for a request
  bool any_address_as_host = false;  // over TCP: beside loopback names
};

// One request a connection. Thread-safe.
class HttpServer {
 public:
  // Called by many threads at once. What it throws becomes a 500.
  using Handler = std::function<ApiReply(const ApiRequest&)>;
  // Of every answer, also those that no handler made.
  using Observer = std::function<void(int status)>;

  HttpServer(const HttpServerOptions& options, Handler handler, Observer observer);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // For connections from now on. Which hosts are allowed stays as it is.
  void set_limits(const HttpServerOptions& options);

  // Serves in threads of its own. The sockets stay the caller's and must outlive stop().
  Result<void> start(const std::vector<ListenSocket>& sockets);
  // Ends every connection. What waits in a handler must be told to return before.
  void stop();
  [[nodiscard]] std::size_t open_connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pudica::daemon
