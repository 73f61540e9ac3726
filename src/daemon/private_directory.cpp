#include "daemon/private_directory.h"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>

namespace pudica::daemon {

Result<void> make_private_directories(const std::filesystem::path& directory) {
  std::filesystem::path made;
  for (const std::filesystem::path& part : directory) {
    made /= part;
    if (::mkdir(made.c_str(), S_IRWXU) == 0 || errno == EEXIST || errno == EISDIR) continue;
    const int code = errno;
    if (code == EROFS && std::filesystem::exists(made)) continue;
    return Error{ErrorCode::kUnavailable,
                 "directory '" + made.string() + "' cannot be made: " + std::strerror(code)};
  }
  return {};
}

}  // namespace pudica::daemon
