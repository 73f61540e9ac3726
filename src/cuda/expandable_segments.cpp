#include "cuda/expandable_segments.h"

#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include <c10/core/AllocatorConfig.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "base/log.h"

namespace pudica::hooks {
namespace {

using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

struct Wish {
  std::mutex mutex;
  int holders = 0;
  std::string before;     // the user's settings
  std::string said;       // ours; empty: none
  std::string as_before;  // what takes them back
  bool told = false;
};
Wish& wish() {
  static auto* the_wish = new Wish;  // leaked: meters are
  return *the_wish;
}

constexpr const char* kExpandable = "expandable_segments";
constexpr const char* kPage = "large_segment_size_mb";

std::string with(const std::string& others, const char* name, const std::string& value) {
  return others + (others.empty() ? "" : ",") + name + ":" + value;
}

std::string mebibytes(std::size_t bytes) { return std::to_string(bytes >> 20U); }

// What a call does not name it resets, but for these two: so all is said again. Torch's words
// where it refuses, as it does where the user's last were refused, too: it remembers those.
std::string set(const std::string& settings) {
  try {
    c10::CachingAllocator::setAllocatorSettings(settings);
    return {};
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return "torch's allocator refuses the settings '" + settings +
           "': " + what.substr(0, what.find('\n'));
  }
}

bool is_named(const std::string& settings, const char* name) {
  return settings.find(std::string(name) + ":") != std::string::npos;
}

// Segments that exist keep their pages: where the user has expandable ones, so does the setting.
std::string with_small_pages(const std::string& settings) {
  if (Config::use_expandable_segments() || is_named(settings, kPage)) return settings;
  return with(settings, kPage, mebibytes(ExpandableSegments::kPageBytes));
}

// After the call that takes back what `now` has and `before` has not.
std::string taken_back(const std::string& before, const std::string& now) {
  std::string settings = before;
  if (is_named(now, kExpandable) && !is_named(before, kExpandable)) {
    settings = with(settings, kExpandable, "False");
  }
  if (is_named(now, kPage) && !is_named(before, kPage)) {
    settings = with(settings, kPage, mebibytes(Config::large_segment_size()));
  }
  return settings;
}

}  // namespace

bool ExpandableSegments::are_possible(c10::DeviceIndex device) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kVersion = 12000;
  if (cudaGetDriverEntryPointByVersion("cuDeviceGetAttribute", &function, kVersion,
                                       cudaEnableDefault, &found) != cudaSuccess ||
      found != cudaDriverEntryPointSuccess || function == nullptr) {
    (void)cudaGetLastError();
    return false;
  }
  int possible = 0;
  const auto attribute = reinterpret_cast<decltype(&cuDeviceGetAttribute)>(function);
  return attribute(&possible, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) ==
             CUDA_SUCCESS &&
         possible != 0;
}

void ExpandableSegments::enter(c10::DeviceIndex device) {
  const std::lock_guard lock(wish().mutex);
  if (wish().holders++ > 0 || !wish().said.empty()) return;
  const std::string settings = c10::CachingAllocator::getAllocatorSettings();
  std::string wanted = with_small_pages(settings);
  const bool expands = !Config::use_expandable_segments() && !is_named(settings, kExpandable) &&
                       are_possible(device);
  if (expands) wanted = with(wanted, kExpandable, "True");
  if (wanted == settings) return;
  const std::string as_before = taken_back(settings, wanted);
  const std::string refusal = set(wanted);
  if (refusal.empty()) {
    wish().before = settings;
    wish().as_before = as_before;
    wish().said = wanted;
  }
  if (std::exchange(wish().told, true)) return;
  if (!refusal.empty()) return log_warn("new segments stay of fixed sizes: " + refusal);
  if (!expands) return;
  log_info(
      "new segments of torch's CUDA allocator are expandable while a budget holds "
      "(PYTORCH_ALLOC_CONF=expandable_segments:False leaves them as they are)");
}

void ExpandableSegments::leave() {
  const std::lock_guard lock(wish().mutex);
  if (--wish().holders > 0 || wish().said.empty()) return;
  const bool is_unchanged = c10::CachingAllocator::getAllocatorSettings() == wish().said;
  wish().said.clear();
  if (!is_unchanged) return;  // the user has set something since, which holds
  (void)set(wish().as_before);
  (void)set(wish().before);  // which does not name them
}

std::string ExpandableSegments::insist(c10::DeviceIndex device) {
  if (!are_possible(device)) return "its driver cannot map memory by pages";
  const std::lock_guard lock(wish().mutex);
  wish().said.clear();
  if (Config::use_expandable_segments()) return {};
  const std::string settings = c10::CachingAllocator::getAllocatorSettings();
  return set(with(with_small_pages(settings), kExpandable, "True"));
}

}  // namespace pudica::hooks
