// What the fuzz targets share. Each target defines LLVMFuzzerTestOneInput(); libFuzzer drives it in
// the preset `fuzz`, replay_main.cpp over the committed inputs in all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "pudica/result.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace pudica::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline void require(bool holds, std::string_view what, std::string_view detail = {}) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s: %s\n", std::string(what).c_str(), std::string(detail).c_str());
  std::abort();
}

// What was refused says why, in a message that can be shown.
inline void require_message(const Error& error) {
  require(!error.message.empty(), "an error without a message");
  require(error.message.size() < 8192, "a message as long as its input", error.message);
}

// What was read is written as text that reads back as the same.
template <typename Parse, typename Write>
void require_round_trip(std::string_view text, const Parse& parse, const Write& write) {
  const auto value = parse(text);
  if (!value) {
    require_message(value.error());
    return;
  }
  const std::string once = write(*value);
  const auto again = parse(once);
  require(again.has_value(), "cannot be read back", once);
  require(write(*again) == once, "reads back as something else", once);
}

}  // namespace pudica::fuzz
