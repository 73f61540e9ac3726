// A run that a question is about: live, ended lately, or read back from the store.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "daemon/run_state.h"
#include "inspect/json_values.h"
#include "inspect/model_view.h"
#include "pudica/bytes.h"

namespace pudica::daemon {

// Thread-safe: a value.
struct AskedRun {
  std::string id;
  bool live = false;
  std::string fingerprint;
  Bytes budget_bytes{0};  // in effect, or at the end; 0: not limited
  std::optional<Bytes> base_bytes;
  std::shared_ptr<const std::string> own_state;  // learned; nullptr: the pool's is all there is
  std::optional<std::uint64_t> learned_step;     // of own_state
  inspect::Json plans;                           // of its snapshot under that budget; a list
};

AskedRun asked_run(const RunDetail& run);
// As GET /v1/runs/{id} and GET /v1/runs/{id}/plans gave them at the run's end.
AskedRun asked_run(const inspect::Json& run, const inspect::Json& plans);

// The plan that the run has for this key; nullopt where it has none.
std::optional<inspect::HeldPlan> held_plan(const AskedRun& run, const std::string& key);

}  // namespace pudica::daemon
