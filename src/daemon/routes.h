// The table of routes: what docs/http_api.md and the OpenAPI document list.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/api.h"

namespace pudica::daemon {

struct Route {
  std::string_view method;
  std::string_view path;  // "/v1/runs/{id}"
  ApiReply (Api::*endpoint)(const ApiRequest&);
};

std::span<const Route> routes();

// What stands for the parts in braces, decoded; nullopt where the path is another. "{path}" at the
// end takes all that is left.
std::optional<std::vector<std::string>> match_path(std::string_view pattern, std::string_view path);

}  // namespace pudica::daemon
