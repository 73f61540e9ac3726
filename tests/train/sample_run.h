// A made-up run for the tests of results, summary and report.
#pragma once

#include <cstdint>
#include <string>

#include "inspect/origin.h"
#include "train/results.h"

namespace pudica::train {

struct SamplePolicy {
  std::string name;
  double seconds = 1;
  std::int64_t peak = 1000;
  std::int64_t steps = 20;
};

// Every step alike: rows a test then changes.
inline PolicyResult sample_policy(const SamplePolicy& sample) {
  PolicyResult policy;
  policy.name = sample.name;
  for (std::int64_t i = 0; i < sample.steps; ++i) {
    StepRow row;
    row.step = i;
    row.shape = "4x" + std::to_string(100 + i);
    row.seconds = sample.seconds;
    row.cpu_seconds = 2 * sample.seconds;
    row.loss = 5 - 0.1 * static_cast<double>(i);
    row.peak = Bytes(sample.peak);
    row.budget = Bytes(2000);
    row.layer_calls = 8;
    policy.rows.push_back(row);
  }
  policy.params_sha256 = std::string(64, 'a');
  return policy;
}

inline RunResult sample_run() {
  RunResult run;
  run.options.steps = 20;
  run.options.data.path = "/somewhere/text.txt";
  run.machine = describe_machine();
  run.origin = describe_origin({"pudica-train", "--steps", "20"});
  run.versions = {{"torch", "2.11.0"}};
  run.budget = Bytes(2000);
  run.floor = Bytes(1000);
  run.keep_all = Bytes(3500);
  run.policies = {sample_policy({"none", 1.0, 3500}), sample_policy({"full", 1.3, 1000}),
                  sample_policy({"pudica", 1.05, 1990})};
  return run;
}

}  // namespace pudica::train
