// Bounds for text from outside: how much of it a message shows, how deep and wide JSON may be.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pudica {

// JSON nested deeper is refused: libraries write such values recursively. So are objects with more
// fields: an object that keeps their order takes time by the square of their number.
inline constexpr std::size_t kMaxJsonDepth = 64;
inline constexpr std::size_t kMaxJsonFields = 1024;

// Of a library's message on JSON, which may hold a word of the text in full.
inline constexpr std::size_t kMaxJsonMessage = 400;

// The text, or its first characters, at most so many bytes, and "...": for messages. Thread-safe.
std::string shown(std::string_view text, std::size_t most = 60);

// What of the text, which need not be correct JSON, is beyond these limits; empty: nothing is.
// Thread-safe.
std::string beyond_json_limits(std::string_view json);

}  // namespace pudica
