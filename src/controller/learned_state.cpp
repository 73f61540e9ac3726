#include "controller/learned_state.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

namespace pudica {
namespace {

constexpr std::string_view kHeader = "pudica-state 1";

// FNV-1a, 64 bits: against truncation and accidents, not against malice.
std::uint64_t checksum(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

std::string hexadecimal(std::uint64_t value) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
  return {digits.data(), end};
}

Error corrupt(const std::string& what) { return {ErrorCode::kCorrupt, "learned state: " + what}; }

// Takes the text up to the next line end off the front.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

}  // namespace

std::string seal_state(const std::string& body, const std::string& fingerprint) {
  const std::string content =
      "fingerprint " + std::to_string(fingerprint.size()) + "\n" + fingerprint + "\n" + body;
  return std::string(kHeader) + "\n" + hexadecimal(checksum(content)) + "\n" + content;
}

Result<std::string> open_state(const std::string& text, const std::string& fingerprint) {
  std::string_view rest = text;
  const std::string_view header = take_line(rest);
  if (header != kHeader) {
    return corrupt("begins with '" + std::string(header.substr(0, 40)) + "', expected '" +
                   std::string(kHeader) + "'");
  }
  const std::string_view stated = take_line(rest);
  const std::string actual = hexadecimal(checksum(rest));
  if (stated != actual) {
    return corrupt("checksum is " + actual + ", stated is '" + std::string(stated.substr(0, 16)) +
                   "'");
  }
  constexpr std::string_view kPrefix = "fingerprint ";
  std::string_view length = take_line(rest);
  std::size_t count = 0;
  if (!length.starts_with(kPrefix)) return corrupt("no fingerprint");
  length.remove_prefix(kPrefix.size());
  const auto parsed = std::from_chars(length.data(), length.data() + length.size(), count);
  if (parsed.ec != std::errc() || count + 1 > rest.size()) return corrupt("no fingerprint");
  const std::string_view found = rest.substr(0, count);
  if (found != fingerprint) {
    return invalid_argument("learned state: is of the model '" + std::string(found) +
                            "', expected '" + fingerprint + "'");
  }
  return std::string(rest.substr(count + 1));
}

}  // namespace pudica
