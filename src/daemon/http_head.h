// What is checked of a request's head before the HTTP library sees it. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pudica::daemon {

struct HeadLimits {
  std::size_t lines = 100;
  std::size_t line_bytes = 8192;
};

struct CheckedHead {
  int status = 0;       // 0: fine; else that of the answer
  std::string message;  // of the answer
  std::string head;     // rewritten, with its blank line
  std::string host;     // without its port
  std::size_t content_length = 0;
};

// Just behind the blank line that ends a head; npos where there is none.
std::size_t end_of_head(std::string_view text);

// Refuses what is too long, ambiguous (two lengths), encoded, or holds control characters; leaves
// out the headers whose treatment in the library has no bound (ranges, encodings, forms). A request
// that says no length has none.
CheckedHead check_head(std::string_view head, const HeadLimits& limits);

}  // namespace pudica::daemon
