#include "emulated_device/settings.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <unistd.h>

namespace pudica::emulated {
namespace {

[[noreturn]] void refuse(const char* name, const char* value, const std::string& expected) {
  std::fprintf(stderr, "emulated device: %s=%s: expected %s\n", name, value, expected.c_str());
  _exit(2);
}

struct Bounds {
  double least;
  double most;
};

double number(const char* name, double otherwise, Bounds bounds) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !(value >= bounds.least && value <= bounds.most)) {
    std::array<char, 64> expected{};
    std::snprintf(expected.data(), expected.size(), "a number from %g to %g", bounds.least,
                  bounds.most);
    refuse(name, text, expected.data());
  }
  return value;
}

Card chosen_card() {
  constexpr const char* kVariable = "PUDICA_EMULATED_CARD";
  const char* name = std::getenv(kVariable);
  const Card* found = find_card(name == nullptr || *name == '\0' ? "A100-80" : name);
  if (found == nullptr) refuse(kVariable, name, "one of " + card_names());
  Card card = *found;
  constexpr double kMost = 1e13;
  card.memory_bytes = static_cast<std::size_t>(number(
      "PUDICA_EMULATED_BYTES", static_cast<double>(card.memory_bytes), {double(1 << 20), kMost}));
  card.context_bytes = static_cast<std::size_t>(
      number("PUDICA_EMULATED_CONTEXT_BYTES", static_cast<double>(card.context_bytes), {0, kMost}));
  return card;
}

// The place of the value among those that there are.
std::size_t choice(const char* name, std::initializer_list<const char*> known) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return 0;
  std::string names;
  std::size_t place = 0;
  for (const char* each : known) {
    if (std::string(text) == each) return place;
    names += (place++ == 0 ? "" : ", ") + std::string(each);
  }
  refuse(name, text, "one of " + names);
}

std::set<std::uint64_t> numbers(const char* name) {
  std::set<std::uint64_t> found;
  const char* text = std::getenv(name);
  for (const char* at = text; at != nullptr && *at != '\0';) {
    char* end = nullptr;
    const auto value = std::strtoull(at, &end, 10);
    if (end == at || value == 0 || (*end != ',' && *end != '\0')) {
      refuse(name, text, "numbers from 1 on, with commas between");
    }
    found.insert(value);
    at = *end == ',' ? end + 1 : end;
  }
  return found;
}

Settings read() {
  Settings read;
  read.card = chosen_card();
  read.devices = static_cast<int>(number("PUDICA_EMULATED_DEVICES", 1, {1, kMostDevices}));
  read.launch_us = number("PUDICA_EMULATED_LAUNCH_US", read.launch_us, {0, 1e9});
  read.call_us = number("PUDICA_EMULATED_CALL_US", read.call_us, {0, 1e9});
  read.order = static_cast<Order>(choice("PUDICA_EMULATED_ORDER", {"issue", "clock", "late"}));
  if (read.order == Order::kLate) {
    // The device is so slow that nothing is done before the host waits or has asked twice.
    constexpr double kUsPerSecond = 1e6;
    read.launch_us = kUsPerSecond;
    read.query_us = kUsPerSecond / 2;
    read.call_us = 0;
  }
  read.lag_us = number("PUDICA_EMULATED_LAG_US", 0, {0, 1e9});
  read.seed = static_cast<std::uint64_t>(number("PUDICA_EMULATED_SEED", 1, {0, 1e15}));
  read.freed = static_cast<Freed>(choice("PUDICA_EMULATED_FREED", {"reuse", "fault"}));
  read.refused_mallocs = numbers("PUDICA_EMULATED_FAIL_MALLOC");
  read.maps_pages = number("PUDICA_EMULATED_PAGES", 1, {0, 1}) != 0;
  read.log_stubs = number("PUDICA_EMULATED_LOG", 0, {0, 1}) != 0;
  return read;
}

// At load: a name that is wrong is told before anything runs.
[[gnu::constructor]] void read_when_loaded() { settings(); }

}  // namespace

const Settings& settings() {
  static const Settings the = read();
  return the;
}

}  // namespace pudica::emulated
