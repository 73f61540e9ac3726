// Reading JSON that another program wrote: what is absent or of another type is simply not there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace pudica::cli {

using Json = nlohmann::ordered_json;

// A field, with points between levels ("last.seconds"); nullptr where there is none.
const Json* find(const Json& object, std::string_view path);

std::optional<std::int64_t> integer(const Json& object, std::string_view path);
std::optional<double> number(const Json& object, std::string_view path);
bool is_true(const Json& object, std::string_view path);
// Empty where there is none.
std::string text(const Json& object, std::string_view path);
// An empty list where there is none.
const Json& list(const Json& object, std::string_view path);

// Pure ASCII in one line, or indented: safe on any terminal. Never throws.
std::string dump(const Json& value);
std::string dump_indented(const Json& value);

}  // namespace pudica::cli
