#include "pudica/shape_key.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>

#include "base/dimension_names.h"
#include "base/text_limits.h"

namespace pudica {
namespace {

constexpr std::size_t kLongestName = 64;

const DimensionNames& default_names() {
  static const DimensionNames names{"batch", "source", "target", "dim3", "dim4", "dim5"};
  return names;
}

const DimensionNames* default_names(std::size_t count) {
  static const auto interned = [] {
    std::array<const DimensionNames*, ShapeKey::kMaxDimensions + 1> out{};
    const DimensionNames& all = default_names();
    for (std::size_t n = 0; n < out.size(); ++n) {
      out[n] = intern_dimension_names(
          DimensionNames(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n)));
    }
    return out;
  }();
  return interned[count];
}

Error bad_shape(std::string_view text) {
  return invalid_argument("not a shape: '" + shown(text) +
                          "'; expected positive sizes such as 12x384 or batch=12,source=384");
}

void check_size(std::size_t size) {
  if (size > ShapeKey::kMaxDimensions) {
    throw BugError("ShapeKey: " + std::to_string(size) + " dimensions, at most " +
                   std::to_string(ShapeKey::kMaxDimensions));
  }
}

std::optional<std::int64_t> parse_size(std::string_view text) {
  std::int64_t value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || rest != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

// Interned names are never given back: nullptr for new ones where there are `most` already.
const DimensionNames* intern(const DimensionNames& names, std::size_t most) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<const DimensionNames>> known;
  const std::lock_guard lock(mutex);
  for (const auto& entry : known) {
    if (*entry == names) return entry.get();
  }
  if (known.size() >= most) return nullptr;
  known.push_back(std::make_unique<const DimensionNames>(names));
  return known.back().get();
}

}  // namespace

const DimensionNames* intern_dimension_names(const DimensionNames& names) {
  return intern(names, std::numeric_limits<std::size_t>::max());
}

const DimensionNames* intern_foreign_names(const DimensionNames& names) {
  return intern(names, kMostDimensionNames);
}

ShapeKey::ShapeKey(std::initializer_list<std::int64_t> values)
    : ShapeKey(std::span<const std::int64_t>(values.begin(), values.size())) {}

ShapeKey::ShapeKey(std::span<const std::int64_t> values) : size_(values.size()) {
  check_size(size_);
  names_ = default_names(size_);
  std::ranges::copy(values, values_.begin());
}

ShapeKey::ShapeKey(const DimensionNames& names, std::span<const std::int64_t> values)
    : size_(values.size()) {
  check_size(size_);
  if (names.size() != size_) throw BugError("ShapeKey: as many names as values are needed");
  names_ = intern_dimension_names(names);
  std::ranges::copy(values, values_.begin());
}

std::string ShapeKey::to_string() const {
  std::string text;
  for (std::size_t i = 0; i < size_; ++i) {
    if (i > 0) text += 'x';
    text += std::to_string(values_[i]);
  }
  return text;
}

std::string ShapeKey::to_named_string() const {
  std::string text;
  for (std::size_t i = 0; i < size_; ++i) {
    if (i > 0) text += ',';
    text += (*names_)[i] + '=' + std::to_string(values_[i]);
  }
  return text;
}

Result<ShapeKey> ShapeKey::parse(std::string_view text) {
  const bool named = text.find('=') != std::string_view::npos;
  const char separator = named ? ',' : 'x';
  DimensionNames names;
  std::vector<std::int64_t> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    std::string_view part = text.substr(begin, end - begin);
    if (named) {
      const std::size_t equals = part.find('=');
      if (equals == std::string_view::npos || equals == 0) return bad_shape(text);
      names.emplace_back(part.substr(0, equals));
      part = part.substr(equals + 1);
    }
    const auto value = parse_size(part);
    if (!value) return bad_shape(text);
    values.push_back(*value);
    begin = end + 1;
  }
  if (values.empty() || values.size() > kMaxDimensions) return bad_shape(text);
  if (!named) return ShapeKey(std::span<const std::int64_t>(values));
  if (std::ranges::any_of(names, [](const auto& name) { return name.size() > kLongestName; })) {
    return bad_shape(text);
  }
  if (intern_foreign_names(names) == nullptr) {
    return invalid_argument("shape '" + shown(text) + "': new names of dimensions, and there are " +
                            std::to_string(kMostDimensionNames) + " sets of names already");
  }
  return ShapeKey(names, values);
}

bool ShapeKey::covers(const ShapeKey& other) const {
  if (size_ != other.size_) return false;
  for (std::size_t i = 0; i < size_; ++i) {
    if (values_[i] < other.values_[i]) return false;
  }
  return true;
}

std::size_t ShapeKey::hash() const {
  std::uint64_t state = 0x9e3779b97f4a7c15ULL + size_;
  for (std::size_t i = 0; i < size_; ++i) {
    state = (state ^ static_cast<std::uint64_t>(values_[i])) * 0xff51afd7ed558ccdULL;
    state ^= state >> 32U;
  }
  return static_cast<std::size_t>(state);
}

bool ShapeKey::operator==(const ShapeKey& other) const {
  return size_ == other.size_ &&
         std::equal(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(size_),
                    other.values_.begin());
}

std::strong_ordering ShapeKey::operator<=>(const ShapeKey& other) const {
  const auto mine = values();
  const auto theirs = other.values();
  return std::lexicographical_compare_three_way(mine.begin(), mine.end(), theirs.begin(),
                                                theirs.end());
}

}  // namespace pudica
