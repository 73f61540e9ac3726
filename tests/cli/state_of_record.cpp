// Prints the learned state of a controller that has seen the profiles of a record, under a
// fingerprint: what a training process would have sent to the daemon.
#include <cstdio>
#include <memory>
#include <string>

#include "cli/record_reader.h"
#include "config/config.h"
#include "pudica/controller.h"

int main(int argc, char** argv) {
  using namespace pudica;  // NOLINT(google-build-using-namespace): the program itself
  if (argc != 3) return 2;
  auto reader = cli::RecordReader::open(argv[1]);
  if (!reader) return 2;
  const auto controller = make_controller(compile_controller_options(Config{}));
  StepContext context;
  for (;;) {
    const auto record = reader->next();
    if (!record) return 1;
    if (!*record) break;
    const StepRecord& step = **record;
    if (step.profiles) {
      context.base_bytes = step.profiles->base_bytes;
      context.gradients_present = step.profiles->gradients_present;
    }
    context.shape = step.key;
    context.budget_bytes = step.budget_bytes;
    StepOutcome outcome;
    outcome.context = context;
    outcome.plan = controller->begin_step(context).plan;
    outcome.peak_bytes = step.measured_bytes;
    outcome.seconds = step.seconds;
    if (step.profiles) {
      controller->on_structure(step.profiles->structure);
      outcome.segments = step.profiles->segments;
    }
    controller->end_step(outcome);
  }
  std::fputs(controller->serialize(argv[2]).c_str(), stdout);
  return 0;
}
