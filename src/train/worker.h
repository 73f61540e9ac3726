// The worker process: trains under one policy, a step when told to.
//
// Commands, one JSON object a line, and their replies:
//   {"cmd":"calibrate"}
//     -> {"floor_bytes":N,"keep_all_bytes":N,"menu_floor_bytes":N|null,"versions":{"torch":"..."},
//         "config_budget":"...","config_state_file":"..."}
//     The largest peaks over the run's batches. `config_budget` and `config_state_file` only where
//     the configuration file names one.
//   {"cmd":"setup","policy":"pudica:menu=keep+full","budget_bytes":N,"none":"plain",
//    "state":"FILE","state_file":"FILE","record":"FILE","floor_bytes":N,"keep_all_bytes":N}
//     -> {"ok":true,"daemon":{"registered":true,"id":"...","reason":"..."}|null}
//     `none`: of that policy, whether it trains "plain", "metered" or "capped" (worker_session.h).
//     `state` (--state), `state_file` (the configuration's) and `record` may be absent: only one
//     worker of a run has them. `daemon`: how the registration went; null where the run does not
//     register.
//   {"cmd":"step","i":N}
//     -> a StepRow (results.h) as JSON, of the run's batch N
//   {"cmd":"finish"}
//     -> {"params_sha256":"...","cache":{"hits":N,"misses":N,"plans":N}|null,"plans":[...]|null}
//     `plans`: the last plan of each shape, objects with at least {"shape":"4x512",
//     "modes":["keep","full",...],"predicted_bytes":N,"measured_bytes":N,"uses":N,"reason":"..."}.
//     Writes the learned state. The worker ends when the parent closes the connection.
// A failure is answered {"error":"...","usage":true,"oom":true}: `usage` where the user's input is
// wrong (exit code 2), `oom` where memory ran out; both may be absent.
#pragma once

#include "train/options.h"
#include "train/protocol.h"

namespace pudica::train {

// Answers commands until the parent is gone. Returns the process's exit code.
int run_worker(const TrainOptions& options, Channel& channel);

}  // namespace pudica::train
