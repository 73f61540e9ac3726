// A plain number does not become a byte count unasked.
#include "pudica/bytes.h"

pudica::Bytes page() {
#ifdef PUDICA_MUST_FAIL
  pudica::Bytes bytes = 4096;
#else
  pudica::Bytes bytes{4096};
#endif
  return bytes;
}
