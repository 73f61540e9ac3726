// One connection as the HTTP library reads and writes it: bounded in bytes and in time.
#pragma once

#include <chrono>
#include <cstddef>
#include <httplib.h>
#include <string>
#include <utility>

#include "daemon/http_head.h"

namespace pudica::daemon {

struct StreamLimits {
  HeadLimits head;
  std::size_t body_bytes = 0;
  std::chrono::milliseconds head_time{5000};
  std::chrono::milliseconds stall_time{5000};     // without a byte of the body, or of the answer
  std::chrono::milliseconds request_time{30000};  // for the request, and again for the answer
};

// Does not own the file descriptor. After a fault nothing more is read, and what is written is
// dropped: the owner answers by itself. Not thread-safe.
class HttpStream : public httplib::Stream {
 public:
  HttpStream(int fd, const StreamLimits& limits);

  // Reads the head, checks it, and hands its rewritten form to read(). False: fault() says why, or
  // the other side closed without a byte (fault() of status 0).
  [[nodiscard]] bool read_head();
  struct Fault {
    int status = 0;
    std::string message;
  };
  [[nodiscard]] const Fault& fault() const { return fault_; }
  [[nodiscard]] const CheckedHead& head() const { return head_; }
  // In place of what was written so far.
  void answer_instead(std::string text) { output_ = std::move(text); }
  [[nodiscard]] const std::string& output() const { return output_; }
  // Sends what was written. Where the request was not read to its end, takes in a little more of it
  // first, so that the other side gets to read the answer.
  void flush();

  [[nodiscard]] bool is_readable() const override { return true; }
  [[nodiscard]] bool is_writable() const override { return true; }
  ssize_t read(char* out, std::size_t size) override;
  ssize_t write(const char* data, std::size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  // Not the real one: the library refuses numbers that select() cannot take, and we use poll().
  [[nodiscard]] socket_t socket() const override { return 0; }

 private:
  using Clock = std::chrono::steady_clock;
  // Bytes read into input_, 0 at the end, -1 where none came until `deadline`.
  ssize_t receive(Clock::time_point deadline);
  void drain();
  bool fail(int status, std::string message);

  int fd_;
  const StreamLimits& limits_;
  Clock::time_point began_ = Clock::now();
  std::string input_;  // read from the socket, from position_ on not yet taken
  std::size_t position_ = 0;
  std::size_t body_taken_ = 0;  // bytes handed out behind the head
  std::size_t head_left_ = 0;   // bytes of the rewritten head not yet handed out
  CheckedHead head_;
  Fault fault_;
  std::string output_;
};

}  // namespace pudica::daemon
