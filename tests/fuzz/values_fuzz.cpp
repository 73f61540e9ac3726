// Values that people write: byte counts, budgets, shapes, modes.
#include "config/config.h"
#include "fuzz/fuzz.h"
#include "pudica/shape_key.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pudica;
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto bytes = parse_bytes(text)) {
    fuzz::require(*bytes >= Bytes(0) && !format_bytes(*bytes).empty(), "a negative byte count");
  } else {
    fuzz::require_message(bytes.error());
  }
  fuzz::require_round_trip(text, parse_budget,
                           [](const BudgetSetting& budget) { return to_string(budget); });
  fuzz::require_round_trip(text, ShapeKey::parse,
                           [](const ShapeKey& key) { return key.to_named_string(); });
  fuzz::require_round_trip(text, parse_mode, [](const Mode& mode) { return to_string(mode); });
  return 0;
}
