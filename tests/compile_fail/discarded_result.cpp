// A Result that nobody looks at is refused.
#include "pudica/bytes.h"

void read_budget() {
#ifdef PUDICA_MUST_FAIL
  pudica::parse_bytes("600MiB");
#else
  const auto bytes = pudica::parse_bytes("600MiB");
  static_cast<void>(bytes);
#endif
}
