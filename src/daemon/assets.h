// Files embedded in the program: the page and what it loads, the OpenAPI document.
#pragma once

#include <optional>
#include <string_view>

namespace pudica::daemon {

struct Asset {
  std::string_view content_type;
  std::string_view content;
};

// "/" is the page; "/assets/NAME" a file of src/daemon/page, or chart.min.js.
std::optional<Asset> find_asset(std::string_view path);

std::string_view openapi_document();

}  // namespace pudica::daemon
