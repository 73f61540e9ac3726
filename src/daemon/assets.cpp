#include "daemon/assets.h"

#include <algorithm>
#include <array>

#include "daemon/embedded.h"

namespace pudica::daemon {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kContentTypes{
    {{".html", "text/html; charset=utf-8"},
     {".css", "text/css; charset=utf-8"},
     {".js", "text/javascript; charset=utf-8"},
     {".json", "application/json"},
     {".svg", "image/svg+xml"},
     {".png", "image/png"},
     {".ico", "image/x-icon"}}};

std::string_view content_type(std::string_view file) {
  const auto* const found = std::ranges::find_if(
      kContentTypes, [file](const auto& type) { return file.ends_with(type.first); });
  return found == kContentTypes.end() ? "application/octet-stream" : found->second;
}

}  // namespace

std::optional<Asset> find_asset(std::string_view path) {
  const auto files = embedded_files();
  const auto found = std::ranges::find(files, path, &EmbeddedFile::name);
  if (found == files.end() || !path.starts_with('/')) return std::nullopt;
  return Asset{content_type(found->file), found->content};
}

std::string_view openapi_document() {
  const auto files = embedded_files();
  const auto found = std::ranges::find(files, "openapi", &EmbeddedFile::name);
  return found == files.end() ? std::string_view("{}") : found->content;
}

}  // namespace pudica::daemon
