// How far a kind of step has come in measuring the menus of its layers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "pudica/mode.h"
#include "pudica/plan.h"
#include "pudica/shape_key.h"
#include "pudica/step_costs.h"

namespace pudica {

inline bool runs_selective(const Plan& plan) {
  return std::ranges::any_of(plan.modes,
                             [](const Mode& mode) { return mode.kind == Mode::Kind::kSelective; });
}

// A value; not thread-safe.
struct MenuCourse {
  std::int64_t steps = 0;           // spent on measuring beside plans
  std::int64_t promised_steps = 0;  // of plans that rested on modes that were not measured
  std::int64_t idle_asks = 0;       // in a row, in which no mode was wanted that was not before
  // What plans took for recomputing, less what measuring modes beside them took.
  double lost_seconds = 0;
  double awaited_seconds = std::numeric_limits<double>::infinity();  // for the next to be measured
  std::set<std::pair<std::uint16_t, Mode>> wanted;  // by class: some plan was better off with it
  std::vector<std::int64_t> measured_to;            // by dimension, the product of all behind them

  // No menu promises anything of it: only measuring tells.
  static bool is_open(const UnknownMode& mode) { return mode.freed_bytes <= 0; }
  [[nodiscard]] bool wants(const UnknownMode& mode) const {
    return wanted.contains({mode.layer_class, mode.mode});
  }

  // Operators choose other algorithms at other sizes: what small shapes show of a mode is looked at
  // again where it is taken further.
  [[nodiscard]] bool grows_to(const ShapeKey& shape) const {
    constexpr double kFurther = 1.25;
    const std::vector<std::int64_t> sizes = sizes_of(shape);
    if (measured_to.size() != sizes.size()) return true;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto most = static_cast<double>(measured_to[i]);
      if (static_cast<double>(sizes[i]) > kFurther * most) return true;
    }
    return false;
  }
  // Selective modes were measured in a step of `shape`.
  void note_measured(const ShapeKey& shape) {
    const std::vector<std::int64_t> sizes = sizes_of(shape);
    measured_to.resize(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      measured_to[i] = std::max(measured_to[i], sizes[i]);
    }
  }

 private:
  static std::vector<std::int64_t> sizes_of(const ShapeKey& shape) {
    std::vector<std::int64_t> sizes(shape.values().begin(), shape.values().end());
    std::int64_t product = 1;
    for (const std::int64_t size : sizes) {
      if (__builtin_mul_overflow(product, size, &product)) {
        product = std::numeric_limits<std::int64_t>::max();
      }
    }
    sizes.push_back(product);
    return sizes;
  }
};

}  // namespace pudica
