// The signals that end a run.
#pragma once

namespace pudica::train {

// Turns the first SIGINT or SIGTERM into a flag; a second SIGINT ends the process at once.
void install_stop_signals();
// Whether one came. Any thread.
bool stop_requested();

}  // namespace pudica::train
