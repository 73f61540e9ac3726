// Log lines for Python's logging: held here until the training thread fetches them, since they may
// come from threads and from places where the interpreter's lock must not be waited for.
#pragma once

#include <string>
#include <vector>

namespace pudica::python {

// From now on lines are held instead of written to standard error.
void collect_log();
// The lines since the last call, oldest first: "w..." warnings, "i..." information, "d..."
// debugging. At most 256 are held; what came after them is counted in a last line.
std::vector<std::string> log_lines();

}  // namespace pudica::python
