#include "predictor/step/host_room.h"

#include <algorithm>
#include <cstddef>

namespace pudica {

void fill_host(StepModel& model, std::int64_t host_bytes) {
  std::int64_t used = 0;
  for (std::size_t i = 0; i < model.upper.layers.size(); ++i) {
    auto& modes = model.upper.layers[i].modes;
    const auto offload = std::ranges::find(modes, Mode::offload(), &LayerModeCosts::mode);
    if (offload == modes.end()) continue;
    const std::int64_t bytes = offload->forward_peak_bytes - offload->forward_net_bytes;
    if (used + bytes <= host_bytes) {
      used += bytes;
      continue;
    }
    const auto at = offload - modes.begin();
    modes.erase(offload);
    auto& points = model.point.layers[i].modes;
    points.erase(points.begin() + at);
  }
}

}  // namespace pudica
