// The configuration file.
#include "config/config.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using pudica::fuzz::require;
  const pudica::ParsedConfig parsed =
      pudica::parse_config(pudica::fuzz::text_of(data, size), "file.json");
  require(parsed.ok() == parsed.result().has_value(), "errors and result disagree");
  for (const std::string& error : parsed.errors) {
    require(error.starts_with("file.json: ") && error.size() < 8192, "a bad message", error);
  }
  if (parsed.ok()) pudica::compile_controller_options(parsed.config);
  return 0;
}
