#include "inspect/field_reader.h"

#include <cmath>
#include <utility>

#include "base/text_limits.h"

namespace pudica::inspect {
namespace {

constexpr std::size_t kShownWords = 300;

bool fits_signed(const Json& value) {
  return value.is_number_integer() &&
         !(value.is_number_unsigned() &&
           value.get<std::uint64_t>() >
               static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
}

}  // namespace

FieldReader::FieldReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) {
    error_ = invalid_argument((where_.empty() ? "the record" : where_) + ": expected an object");
  }
}

bool FieldReader::has(const char* name) const {
  return object_.is_object() && object_.contains(name);
}

std::int64_t FieldReader::integer(const char* name, std::int64_t least, std::int64_t most) {
  const Json* const value = find(name);
  if (value == nullptr) return 0;
  if (fits_signed(*value)) {
    const auto number = value->get<std::int64_t>();
    if (number >= least && number <= most) return number;
  }
  refuse(name, *value, "an integer from " + std::to_string(least) + " to " + std::to_string(most));
  return 0;
}

std::optional<std::int64_t> FieldReader::integer_or_null(const char* name) {
  const Json* const value = find(name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  const std::int64_t number = integer(name);
  return ok() ? std::optional(number) : std::nullopt;
}

std::uint64_t FieldReader::identifier(const char* name) {
  const Json* const value = find(name);
  if (value == nullptr) return 0;
  if (value->is_number_unsigned()) return value->get<std::uint64_t>();
  refuse(name, *value, "an integer, at least 0");
  return 0;
}

double FieldReader::number(const char* name) {
  const Json* const value = find(name);
  if (value == nullptr) return 0;
  if (value->is_number() && value->get<double>() >= 0 && std::isfinite(value->get<double>())) {
    return value->get<double>();
  }
  refuse(name, *value, "a number, at least 0");
  return 0;
}

bool FieldReader::boolean(const char* name) {
  const Json* const value = find(name);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  refuse(name, *value, "true or false");
  return false;
}

std::string FieldReader::text(const char* name) {
  const Json* const value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  refuse(name, *value, "a string");
  return {};
}

Mode FieldReader::mode(const char* name) {
  const std::string written = text(name);
  if (!ok()) return {};
  const auto parsed = parse_mode(written);
  if (parsed) return *parsed;
  fail(name, parsed.error().message);
  return {};
}

void FieldReader::each(const char* name, const Element& read) {
  const Json* const value = find(name);
  if (value == nullptr) return;
  if (!value->is_array()) {
    refuse(name, *value, "a list");
    return;
  }
  for (std::size_t i = 0; i < value->size() && ok(); ++i) {
    const auto error = read((*value)[i], where_ + name + "[" + std::to_string(i) + "]");
    if (error) fail_with(*error);
  }
}

const Json* FieldReader::object(const char* name) { return find(name); }

void FieldReader::fail(const char* name, const std::string& what) {
  fail_with(invalid_argument(where_ + name + ": " + shown(what, kShownWords)));
}

void FieldReader::fail_with(const Error& error) {
  if (!error_) error_ = error;
}

const Json* FieldReader::find(const char* name) {
  if (!ok()) return nullptr;
  const auto found = object_.find(name);
  if (found != object_.end()) return &*found;
  fail(name, "missing");
  return nullptr;
}

void FieldReader::refuse(const char* name, const Json& value, std::string_view expected) {
  fail(name, shown(dump(value, -1)) + ", expected " + std::string(expected));
}

}  // namespace pudica::inspect
