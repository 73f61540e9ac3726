// `--format`: one line an object, of text with the object's fields in it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/json_view.h"
#include "pudica/result.h"

namespace pudica::cli {

// "{name}\t{last.seconds}": a field of the object in braces, with points between levels; \t, \n and
// \\ are what they are in C; {{ and }} are braces. Thread-safe: a value.
class RowFormat {
 public:
  // Errors: kInvalidArgument naming what was seen and what is expected.
  static Result<RowFormat> parse(std::string_view text);

  // Errors: kInvalidArgument for a field that is neither one of `known` nor in any of the objects,
  // with those that are.
  [[nodiscard]] Result<void> check(std::span<const char* const> known,
                                   const std::vector<const Json*>& objects) const;
  // Values as in the tab-separated output: plain numbers, "-" for what is not known.
  [[nodiscard]] std::string line(const Json& object) const;

 private:
  struct Part {
    std::string text;
    bool is_field = false;
  };
  std::vector<Part> parts_;
};

}  // namespace pudica::cli
