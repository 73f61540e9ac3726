// What a program's optimizers hold that the meter never saw.
#include <cstdint>
#include <utility>
#include <vector>

#include "torch/session.h"

namespace pudica::hooks {

// What was made past the meter since the step began (state copied by `deepcopy` has blocks of
// torch's own allocator on the host) is in what the step ends with and not in what it is told to
// begin with: nothing is learned of it. Where all steps find such, that is how they are.
void Session::count_residents(const std::vector<at::Tensor>& tensors) {
  const std::int64_t before = residents_.bytes();
  residents_.add(tensors);
  if (!step_open_ || residents_.bytes() == before) return;
  if (std::exchange(found_residents_, step_) + 1 < step_) call_failed_ = true;
}

}  // namespace pudica::hooks
