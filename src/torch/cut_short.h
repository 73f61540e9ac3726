// CutShort: steps that end while another model's are under way.
#pragma once

#include <utility>

#include "base/log.h"

namespace pudica::hooks {

// Tells the log, once, where all of a model's steps are so: a generator behind which a
// discriminator runs before the backward of both. Not thread-safe.
class CutShort {
 public:
  // Of a step that ends.
  void note(bool is_cut) {
    in_a_row_ = is_cut ? in_a_row_ + 1 : 0;
    if (in_a_row_ == kTelling && !std::exchange(told_, true)) {
      log_warn(
          "the forward of another attached model began before this one's step was over, in eight "
          "steps in a row: such a step is measured with the other's, and not planned. Attach one "
          "module whose forward calls both models");
    }
  }

 private:
  static constexpr int kTelling = 8;  // as the text says

  int in_a_row_ = 0;
  bool told_ = false;
};

}  // namespace pudica::hooks
