// A byte count and a plain number do not add up.
#include "pudica/bytes.h"

pudica::Bytes grow(pudica::Bytes bytes) {
#ifdef PUDICA_MUST_FAIL
  return bytes + 4096;
#else
  return bytes + pudica::Bytes(4096);
#endif
}
