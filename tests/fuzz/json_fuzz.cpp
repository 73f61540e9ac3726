// JSON of requests and answers: our builder against the library's own.
#include "base/text_limits.h"
#include "fuzz/fuzz.h"
#include "inspect/json_values.h"

namespace {

template <typename Parse>
std::string outcome(std::string_view text, const Parse& parse) {
  try {
    return pudica::inspect::dump(parse(text), -1);
  } catch (const pudica::inspect::Json::exception& error) {
    return std::string("refused: ") + error.what();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using pudica::inspect::Json;
  const std::string_view text = pudica::fuzz::text_of(data, size);
  const std::string ours = outcome(text, pudica::inspect::parse);
  if (pudica::beyond_json_limits(text).empty()) {
    const std::string theirs =
        outcome(text, [](std::string_view it) { return Json::parse(it.begin(), it.end()); });
    pudica::fuzz::require(ours == theirs, "reads otherwise than the library", ours);
  } else {
    pudica::fuzz::require(ours.starts_with("refused: "), "beyond the limits and read", ours);
  }
  return 0;
}
