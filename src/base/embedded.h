// A file that CMake made a part of the program (cmake/embed.cmake).
#pragma once

#include <string_view>

namespace pudica {

struct EmbeddedFile {
  std::string_view name;  // by which it is asked for
  std::string_view file;  // its file's name
  std::string_view content;
};

}  // namespace pudica
