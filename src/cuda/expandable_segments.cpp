#include "cuda/expandable_segments.h"

#include <mutex>
#include <string>

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
};
Wish& wish() {
  static auto* the_wish = new Wish;  // leaked: meters are
  return *the_wish;
}

// What a call does not name it resets, but for this setting: so all is said again.
std::string set(const std::string& others, const char* value) {
  const std::string settings =
      others + (others.empty() ? "" : ",") + "expandable_segments:" + value;
  c10::CachingAllocator::setAllocatorSettings(settings);
  return settings;
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
  wish().before = settings;
  wish().said = set(settings, "True");
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
  set(wish().before, "False");
  c10::CachingAllocator::setAllocatorSettings(wish().before);  // which does not name it
}

void ExpandableSegments::insist() {
  const std::lock_guard lock(wish().mutex);
  wish().said.clear();
  set(c10::CachingAllocator::getAllocatorSettings(), "True");
}

}  // namespace pudica::hooks
