// cpp-httplib's client with bounds on the whole exchange. For http_*.cpp only.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <httplib.h>
#include <string>

#include "inspect/socket_trust.h"

namespace pudica::http {

// One request. The library bounds each read and write by a time and none of them by size, and its
// writes raise SIGPIPE where the other end is gone: a program that trains must outlive all three.
// So the socket is read and written here: at most `timeout` and kMostReplyBytes for the whole
// exchange, and no signal.
class BoundedClient final : public httplib::ClientImpl {
 public:
  // `stopped`, set before stop(), ends an exchange that has not begun to wait yet. Nothing is sent
  // to a listener that `trust` does not trust.
  BoundedClient(const std::string& socket_path, const SocketTrust& trust,
                const std::atomic<bool>& stopped, std::chrono::milliseconds timeout);

  // Which bound ended the exchange; empty: none.
  [[nodiscard]] const std::string& fault() const { return fault_; }
  // Why the listener was sent nothing; empty: it is trusted.
  [[nodiscard]] const std::string& distrust() const { return distrust_; }

 private:
  bool process_socket(const Socket& socket,
                      std::function<bool(httplib::Stream& stream)> callback) override;

  const SocketTrust& trust_;
  const std::atomic<bool>& stopped_;
  std::chrono::milliseconds timeout_;
  std::chrono::steady_clock::time_point deadline_;
  std::string fault_;
  std::string distrust_;
};

}  // namespace pudica::http
