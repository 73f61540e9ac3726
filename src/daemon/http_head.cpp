#include "daemon/http_head.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

namespace pudica::daemon {
namespace {

constexpr std::string_view kBlanks = " \t";
constexpr std::size_t kShownCharacters = 60;

bool same_name(std::string_view left, std::string_view right) {
  return std::ranges::equal(left, right, [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  });
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Headers that ask for work without bound, or that we do not do.
bool left_out(std::string_view name) {
  constexpr std::array<std::string_view, 6> kNames{"range",  "accept-encoding", "content-type",
                                                   "expect", "connection",      "upgrade"};
  return std::ranges::any_of(kNames,
                             [name](std::string_view known) { return same_name(name, known); });
}

std::string shown(std::string_view text) {
  return "'" + std::string(text.substr(0, kShownCharacters)) + "'";
}

std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

class Checker {
 public:
  explicit Checker(const HeadLimits& limits) : limits_(limits) {}

  void request_line(std::string_view line) {
    if (line.size() > limits_.line_bytes) {
      refuse(431, "the request line has " + std::to_string(line.size()) +
                      " characters, expected at most " + std::to_string(limits_.line_bytes));
    }
    checked_.head.append(line).append("\r\n");
  }

  void header(std::string_view line) {
    if (++lines_ > limits_.lines) {
      refuse(431, "more than " + std::to_string(limits_.lines) + " headers");
    }
    if (line.size() > limits_.line_bytes) {
      refuse(431, "a header has " + std::to_string(line.size()) + " characters, expected at most " +
                      std::to_string(limits_.line_bytes));
    }
    const std::size_t colon = line.find(':');
    const std::string_view name = line.substr(0, colon);
    if (colon == std::string_view::npos || name.empty() ||
        name.find_first_of(kBlanks) != std::string_view::npos) {
      refuse(400, "not a header: " + shown(line) + ", expected name: value");
      return;
    }
    note(name, trimmed(line.substr(colon + 1)));
    if (!left_out(name)) checked_.head.append(line).append("\r\n");
  }

  CheckedHead finish() {
    if (!length_ && !chunked_) checked_.head += "Content-Length: 0\r\n";
    if (length_ && chunked_) refuse(400, "both Content-Length and Transfer-Encoding are given");
    checked_.head += "\r\n";
    return std::move(checked_);
  }

  void refuse(int status, std::string message) {
    if (checked_.status != 0) return;
    checked_.status = status;
    checked_.message = std::move(message);
  }

 private:
  void note(std::string_view name, std::string_view value) {
    if (same_name(name, "host")) {
      checked_.host = without_port(value);
    } else if (same_name(name, "content-length")) {
      std::size_t length = 0;
      const auto [rest, status] =
          std::from_chars(value.data(), value.data() + value.size(), length);
      if (length_ || status != std::errc() || rest != value.data() + value.size()) {
        refuse(400, "Content-Length: " + shown(value) + ", expected one number");
      }
      length_ = length;
      checked_.content_length = length;
    } else if (same_name(name, "transfer-encoding")) {
      chunked_ = true;
      if (!same_name(value, "chunked")) {
        refuse(400, "Transfer-Encoding: " + shown(value) + ", expected chunked");
      }
    } else if (same_name(name, "content-encoding") && !same_name(value, "identity")) {
      refuse(400, "Content-Encoding: " + shown(value) + ", expected none");
    }
  }

  const HeadLimits& limits_;
  CheckedHead checked_;
  std::size_t lines_ = 0;
  std::optional<std::size_t> length_;
  bool chunked_ = false;
};

}  // namespace

std::size_t end_of_head(std::string_view text) {
  const std::size_t blank = text.find("\r\n\r\n");
  return blank == std::string_view::npos ? blank : blank + 4;
}

CheckedHead check_head(std::string_view head, const HeadLimits& limits) {
  Checker checker(limits);
  bool first = true;
  while (!head.empty()) {
    const std::size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    const bool plain = std::ranges::none_of(line, [](char character) {
      const auto byte = static_cast<unsigned char>(character);
      return (byte < 0x20 && byte != '\t') || byte == 0x7f;
    });
    if (!plain) checker.refuse(400, "control characters in the head of the request");
    if (first) {
      checker.request_line(line);
    } else if (!line.empty()) {
      checker.header(line);
    }
    first = false;
  }
  return checker.finish();
}

}  // namespace pudica::daemon
