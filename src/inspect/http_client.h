// Requests to the daemon over its UNIX socket.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "inspect/socket_trust.h"
#include "pudica/result.h"

namespace pudica {

struct HttpReply {
  int status = 0;
  std::string body;
  [[nodiscard]] bool ok() const { return status >= 200 && status < 300; }
};

// One connection a request. Not thread-safe, but for stop().
class HttpClient {
 public:
  // Sends nothing to a socket or listener that `trust` does not trust.
  explicit HttpClient(std::string socket_path, SocketTrust trust = SocketTrust::from_environment());
  ~HttpClient();

  // `target` is path and query, escaped where needed. Any status is a reply. Errors: kUnavailable,
  // saying why nothing answered (no socket, no permission, nobody listens, timeout, rubbish) or
  // was asked (distrust).
  Result<HttpReply> get(const std::string& target, std::chrono::milliseconds timeout);
  Result<HttpReply> remove(const std::string& target, std::chrono::milliseconds timeout);
  Result<HttpReply> put(const std::string& target, const std::string& json_body,
                        std::chrono::milliseconds timeout);
  Result<HttpReply> post(const std::string& target, const std::string& json_body,
                         std::chrono::milliseconds timeout);
  // Ends the request under way, from any thread; later ones fail at once.
  void stop();

  [[nodiscard]] const std::string& socket_path() const { return socket_path_; }
  // Why the last request was not sent, in one line; empty: the other end is trusted.
  [[nodiscard]] const std::string& distrust() const { return distrust_; }

 private:
  enum class Method { kGet, kPut, kPost, kDelete };
  struct Request {
    Method method = Method::kGet;
    const std::string& target;
    const std::string& body;
    std::chrono::milliseconds timeout;
  };
  Result<HttpReply> send(const Request& request);

  struct Impl;
  std::string socket_path_;
  SocketTrust trust_;
  std::string distrust_;
  std::unique_ptr<Impl> impl_;
};

// For a query: everything but letters, digits and -._~ as %XX.
std::string url_escape(const std::string& text);

// The message of an error reply ({"error":{"code","message"}}), else its first characters.
std::string error_message(const HttpReply& reply);

}  // namespace pudica
