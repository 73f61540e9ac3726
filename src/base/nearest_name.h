// Nearest known name: for error messages that meet a misspelt one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace pudica {

// Levenshtein distance: the least number of single-character insertions, deletions and
// substitutions between two texts. Thread-safe.
std::size_t edit_distance(std::string_view left, std::string_view right);

// "; did you mean 'rule'?" for the known name nearest to `seen`, the first of equals; empty where
// nothing is near (more than half of its characters differ). Thread-safe.
std::string did_you_mean(std::string_view seen, std::span<const std::string> known);

// "a, b, c". Thread-safe.
std::string joined_names(std::span<const std::string> names);

}  // namespace pudica
