// A request and its answer, without HTTP's own machinery.
#pragma once

#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/access.h"
#include "inspect/json_values.h"
#include "pudica/result.h"

namespace pudica::daemon {

struct ApiRequest {
  std::string method;                        // GET POST PUT ...
  std::string path;                          // as it was sent, without the query
  std::vector<std::string> captures;         // decoded: what stands for {id}, ...
  std::map<std::string, std::string> query;  // decoded
  std::string body;
  Caller caller;
  std::stop_token gone;  // stop is requested once nobody waits for the answer any more
};

struct ApiReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

ApiReply json_reply(int status, const inspect::Json& body);
// {"error":{"code","message"}}; the code is that of the status in docs/http_api.md.
ApiReply error_reply(int status, const std::string& message);
// 400 404 409 503 or 500 by the error's code.
ApiReply error_reply(const Error& error);
// "invalid_argument" of 400, ...
std::string_view error_code(int status);

// "%2F" -> "/"; '+' too is a space where `text` is of a query. Broken escapes stay as they are.
enum class UrlPart { kPath, kQuery };
std::string url_decode(std::string_view text, UrlPart part);
// "a=1&b=2"; of repeated names the first counts.
std::map<std::string, std::string> parse_query(std::string_view text);

}  // namespace pudica::daemon
