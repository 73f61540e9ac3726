#include "daemon/api_reply.h"

#include <charconv>

namespace pudica::daemon {
namespace {

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kOverBudget:
      return 409;
    case ErrorCode::kUnavailable:
      return 503;
    case ErrorCode::kCorrupt:
      break;
  }
  return 500;
}

}  // namespace

std::string_view error_code(int status) {
  switch (status) {
    case 400:
      return "invalid_argument";
    case 401:
      return "unauthorized";
    case 403:
      return "forbidden";
    case 404:
      return "not_found";
    case 405:
      return "method_not_allowed";
    case 408:
      return "timeout";
    case 409:
      return "conflict";
    case 413:
    case 431:
      return "too_large";
    case 426:
      return "protocol";
    case 503:
      return "unavailable";
    default:
      return status < 500 ? "invalid_argument" : "internal";
  }
}

ApiReply json_reply(int status, const inspect::Json& body) {
  ApiReply reply;
  reply.status = status;
  reply.body = inspect::dump(body, -1);
  return reply;
}

ApiReply error_reply(int status, const std::string& message) {
  return json_reply(status, {{"error", {{"code", error_code(status)}, {"message", message}}}});
}

ApiReply error_reply(const Error& error) {
  return error_reply(status_of(error.code), error.message);
}

std::string url_decode(std::string_view text, UrlPart part) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && part == UrlPart::kQuery) {
      out += ' ';
      continue;
    }
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size()) {
      const char* const first = text.data() + i + 1;
      const auto [rest, status] = std::from_chars(first, first + 2, value, 16);
      if (status == std::errc() && rest == first + 2) {
        out += static_cast<char>(value);
        i += 2;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

std::map<std::string, std::string> parse_query(std::string_view text) {
  std::map<std::string, std::string> out;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view value = item.substr(std::min(equals + 1, item.size()));
    if (item.empty()) continue;
    out.emplace(url_decode(item.substr(0, equals), UrlPart::kQuery),
                url_decode(value, UrlPart::kQuery));
  }
  return out;
}

}  // namespace pudica::daemon
