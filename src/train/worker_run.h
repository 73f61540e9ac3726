// TrainingRun: one model, its optimizer and its handle; a step when told to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pudica/policy.h"
#include "pudica/torch.h"
#include "train/data.h"
#include "train/model.h"
#include "train/options.h"
#include "train/results.h"

namespace pudica::train {

// The data of a run and its batches: the same for every policy.
struct RunData {
  Dataset dataset;
  std::vector<Batch> batches;
  ModelDimensions dimensions;
};

// Errors: as load_data.
Result<RunData> load_run_data(const TrainOptions& options);

struct RunSetup {
  std::shared_ptr<Policy> policy;
  Bytes budget_bytes{0};  // 0: measured, not limited
  Enforcement enforcement = Enforcement::kSoft;
  std::function<std::optional<Bytes>()> next_budget;  // as AttachOptions::next_budget
  OffloadOptions offload;                             // likewise
  MenuRules menu_rules;                               // likewise
  bool plain = false;  // no handle and no meter: the rest means nothing, nothing is measured
};

// Trains from the seed on. Only one lives at a time in a process (one handle a device). Not
// thread-safe.
class TrainingRun {
 public:
  virtual ~TrainingRun() = default;

  // Trains on batch `index` of the run and tells what was measured. Throws c10::OutOfMemoryError
  // where memory runs out, and whatever torch throws.
  virtual StepRow step(std::int64_t index) = 0;
  [[nodiscard]] virtual const StepReport& last_report() const = 0;
  [[nodiscard]] virtual std::string params_sha256() const = 0;
};

// Errors: kUnavailable or kInvalidArgument, as attach().
Result<std::unique_ptr<TrainingRun>> start_run(const TrainOptions& options, const RunData& data,
                                               const RunSetup& setup);

}  // namespace pudica::train
