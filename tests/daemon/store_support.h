// What the tests of the store share: a folder that goes with the test, and rows to write.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/store.h"

namespace pudica::daemon::testing {

// An empty folder of this process and test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = ::testing::TempDir() + "pudica_store_XXXXXX";
    const char* const made = ::mkdtemp(name.data());
    if (made == nullptr) ADD_FAILURE() << "cannot make " << name;
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

  // Names in the folder that hold `part`.
  [[nodiscard]] std::vector<std::string> names_with(const std::string& part) const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      const std::string name = entry.path().filename().string();
      if (name.find(part) != std::string::npos) out.push_back(name);
    }
    return out;
  }

 private:
  std::filesystem::path path_;
};

inline std::unique_ptr<Store> open_store(StoreOptions options) {
  auto store = Store::open(std::move(options));
  if (store) return std::move(*store);
  ADD_FAILURE() << store.error().message;
  return nullptr;
}

inline std::unique_ptr<Store> open_store(const std::string& path) {
  StoreOptions options;
  options.path = path;
  return open_store(std::move(options));
}

// "2026-01-01T00:00:07Z"
inline std::string time_at(int second) {
  std::ostringstream out;
  const auto two = [&out](int value) { out << (value < 10 ? "0" : "") << value; };
  out << "2026-01-01T";
  two(second / 3600);
  out << ':';
  two(second / 60 % 60);
  out << ':';
  two(second % 60);
  out << 'Z';
  return out.str();
}

// A run that began at `second` and, where `ended` is not negative, ended then.
inline StoredRun run_at(const std::string& id, int second, int ended = -1) {
  return {id,
          "train",
          R"({"id":")" + id + "\"}",
          ended < 0 ? "" : "ok",
          time_at(second),
          ended < 0 ? "" : time_at(ended)};
}

inline std::vector<StoredStep> steps_from(std::uint64_t first, std::uint64_t count,
                                          std::size_t bytes = 20) {
  std::vector<StoredStep> out;
  for (std::uint64_t i = first; i < first + count; ++i) {
    std::string json = "{\"step\":" + std::to_string(i) + ",\"x\":\"";
    json.append(bytes, 'x');
    out.push_back({i, json + "\"}"});
  }
  return out;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
}

}  // namespace pudica::daemon::testing
