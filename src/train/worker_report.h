// How a worker's run registers with the daemon.
#pragma once

#include <memory>
#include <string>

#include "config/config.h"
#include "inspect/reporting_policy.h"
#include "pudica/controller.h"
#include "train/options.h"

namespace pudica::train {

struct ReportSetup {
  std::string policy;  // as given
  std::string fingerprint;
  Bytes budget_bytes{0};
  Bytes floor_bytes{0};
  Bytes keep_all_bytes{0};
  bool has_state = false;  // the run brought its own learned state
};

// `inner`, seen and steered by the daemon. Waits a moment for the registration where a daemon is
// there, since its budget and its learned state are to hold from the first step on.
std::shared_ptr<ReportingPolicy> report(const TrainOptions& options, const Config& config,
                                        const ReportSetup& setup, std::shared_ptr<Policy> inner,
                                        std::shared_ptr<Controller> controller);

}  // namespace pudica::train
