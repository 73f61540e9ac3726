// Mode: how a layer's activations are held from forward to backward. An open set, not a boolean.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "pudica/result.h"

namespace pudica {

// keep: all held. selective:<k>: the k-th step of the class's own menu. offload: moved to host
// memory. full: all dropped, the layer's function run again. Thread-safe: a value.
struct Mode {
  enum class Kind : std::uint8_t { kKeep, kSelective, kOffload, kFull };

  Kind kind = Kind::kKeep;
  std::uint16_t step = 0;  // of the menu; 0 unless selective

  static constexpr Mode keep() { return {Kind::kKeep, 0}; }
  static constexpr Mode full() { return {Kind::kFull, 0}; }
  static constexpr Mode offload() { return {Kind::kOffload, 0}; }
  static constexpr Mode selective(std::uint16_t step) { return {Kind::kSelective, step}; }

  auto operator<=>(const Mode&) const = default;
};

// "keep", "selective:3", "offload", "full"
std::string to_string(Mode mode);
// Errors: kInvalidArgument naming the text and the known modes.
Result<Mode> parse_mode(std::string_view text);
// Whether a menu names the kind. An empty one stands for all but `offload`, which has to be asked
// for.
bool is_on_menu(std::span<const Mode::Kind> menu, Mode::Kind kind);

}  // namespace pudica
