#include "inspect/learned_shape.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace pudica::inspect {
namespace {

constexpr std::int64_t kLargestSize = std::int64_t{1} << 40U;
// Of all dimensions together: beyond it what a step would need is no number of bytes.
constexpr std::int64_t kMostElements = std::int64_t{1} << 44U;
constexpr std::size_t kLongestEcho = 60;  // of what was seen, in messages

std::string quoted(std::string_view text) {
  std::string out = "'" + std::string(text.substr(0, kLongestEcho));
  return out + (text.size() > kLongestEcho ? "...'" : "'");
}

// "batch x source, such as 12x384 or batch=12,source=384"
std::string expected(const DimensionNames& names) {
  constexpr std::int64_t kExample[] = {12, 384, 256, 64, 32, 16};
  std::string product;
  std::string numbers;
  std::string named;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string size = std::to_string(kExample[i % std::size(kExample)]);
    product += (i > 0 ? " x " : "") + names[i];
    numbers += (i > 0 ? "x" : "") + size;
    named += (i > 0 ? "," : "") + names[i] + "=" + size;
  }
  return "expected " + product + ", such as " + numbers + " or " + named;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

std::optional<std::int64_t> size_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = status == std::errc() && rest == text.data() + text.size();
  if (!whole || value < 1 || value > kLargestSize) return std::nullopt;
  return value;
}

class ShapeText {
 public:
  ShapeText(std::string_view text, const DimensionNames& names)
      : text_(text), names_(names), values_(names.size(), 0) {}

  Result<ShapeKey> read() {
    auto done = text_.find('=') == std::string_view::npos ? read_numbers() : read_named();
    if (!done) return done.error();
    std::int64_t elements = 1;
    for (const std::int64_t value : values_) {
      if (value > kMostElements / elements) {
        return refused("too large, at most " + std::to_string(kMostElements) +
                       " elements in all are read");
      }
      elements *= value;
    }
    return ShapeKey(names_, values_);
  }

 private:
  [[nodiscard]] Error refused(const std::string& what) const {
    return invalid_argument("shape " + quoted(text_) + ": " + what + "; " + expected(names_));
  }

  Result<void> put(std::size_t dimension, std::string_view text) {
    const auto size = size_of(text);
    if (!size) {
      return refused(names_[dimension] + " is " + quoted(text) + ", not a size of 1 to " +
                     std::to_string(kLargestSize));
    }
    values_[dimension] = *size;
    return {};
  }

  Result<void> read_numbers() {
    const auto parts = split(text_, 'x');
    if (parts.size() != names_.size()) {
      return refused(std::to_string(parts.size()) + (parts.size() == 1 ? " size" : " sizes") +
                     " instead of " + std::to_string(names_.size()));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      auto done = put(i, parts[i]);
      if (!done) return done;
    }
    return {};
  }

  Result<void> read_named() {
    for (const std::string_view part : split(text_, ',')) {
      const std::size_t equals = part.find('=');
      if (equals == std::string_view::npos) return refused(quoted(part) + " has no name");
      const std::string_view name = trimmed(part.substr(0, equals));
      const auto found = std::ranges::find(names_, name);
      if (found == names_.end()) return refused("no dimension " + quoted(name));
      const auto dimension = static_cast<std::size_t>(found - names_.begin());
      if (values_[dimension] != 0) return refused(quoted(name) + " is given twice");
      auto done = put(dimension, trimmed(part.substr(equals + 1)));
      if (!done) return done;
    }
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (values_[i] == 0) return refused("'" + names_[i] + "' is missing");
    }
    return {};
  }

  std::string_view text_;
  const DimensionNames& names_;
  std::vector<std::int64_t> values_;
};

}  // namespace

DimensionNames dimension_names(const std::vector<LearnedQuantity>& learned) {
  const auto known = std::ranges::find_if(
      learned, [](const LearnedQuantity& quantity) { return !quantity.dimensions.empty(); });
  return known == learned.end() ? DimensionNames{} : known->dimensions;
}

Result<ShapeKey> parse_shape(std::string_view text, const DimensionNames& names) {
  if (names.empty()) {
    return Error{ErrorCode::kUnavailable, "shape " + quoted(text) + ": no step was learned yet, " +
                                              "so the dimensions are not known"};
  }
  return ShapeText(text, names).read();
}

}  // namespace pudica::inspect
