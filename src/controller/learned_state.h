// The envelope of the learned state: version, fingerprint and checksum around a body of text.
#pragma once

#include <string>

#include "pudica/result.h"

namespace pudica {

std::string seal_state(const std::string& body, const std::string& fingerprint);

// The body of a sealed state. Errors: kCorrupt for damage or an unknown version, kInvalidArgument
// for another fingerprint, naming both.
Result<std::string> open_state(const std::string& text, const std::string& fingerprint);

}  // namespace pudica
