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
  std::string before;  // the user's settings
  std::string said;    // ours; empty: none
  bool told = false;
};
Wish& wish() {
  static auto* the_wish = new Wish;  // leaked: meters are
  return *the_wish;
}

std::string with(const std::string& others, const char* value) {
  return others + (others.empty() ? "" : ",") + "expandable_segments:" + value;
}

// What a call does not name it resets, but for this setting: so all is said again. Torch's words
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

bool is_named(const std::string& settings) {
  return settings.find("expandable_segments:") != std::string::npos;
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
  if (Config::use_expandable_segments() || is_named(settings) || !are_possible(device)) return;
  const std::string wanted = with(settings, "True");
  const std::string refusal = set(wanted);
  if (refusal.empty()) {
    wish().before = settings;
    wish().said = wanted;
  }
  if (std::exchange(wish().told, true)) return;
  if (!refusal.empty()) return log_warn("new segments stay of fixed sizes: " + refusal);
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
  (void)set(with(wish().before, "False"));
  (void)set(wish().before);  // which does not name it
}

std::string ExpandableSegments::insist(c10::DeviceIndex device) {
  if (!are_possible(device)) return "its driver cannot map memory by pages";
  const std::lock_guard lock(wish().mutex);
  wish().said.clear();
  if (Config::use_expandable_segments()) return {};
  return set(with(c10::CachingAllocator::getAllocatorSettings(), "True"));
}

}  // namespace pudica::hooks
