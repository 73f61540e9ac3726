#include "controller/learning_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

namespace pudica {
namespace {

constexpr std::int64_t kEnoughShapes = 2;

struct Group {
  std::uint16_t layer_class = 0;
  std::uint8_t variant = 0;
};

class Teacher {
 public:
  Teacher(const StepLearner& learner, const LearningRequest& request)
      : learner_(learner), request_(request) {}

  [[nodiscard]] bool teaches(Mode mode, std::uint16_t layer_class) const {
    if (mode == Mode::full() && learner_.refuses_full(layer_class)) return false;
    return is_on_menu(request_.menu, mode.kind);
  }

  // Distinct shapes at which a mode is known on layers of a group, forward and backward.
  [[nodiscard]] std::int64_t shapes(Group group, Mode mode) const {
    return learner_.shapes_measured(group.layer_class, group.variant, mode,
                                    request_.gradients_present);
  }

  [[nodiscard]] bool lacks(Group group, Mode mode) const {
    return teaches(mode, group.layer_class) && shapes(group, mode) < kEnoughShapes;
  }

  // A lone layer runs what is known least; `current` where nothing lacks.
  [[nodiscard]] Mode alternate(Group group, Mode current, const std::vector<Mode>& menu) const {
    const auto least_known = [&](const std::vector<Mode>& wanted) -> std::optional<Mode> {
      std::optional<Mode> best;
      for (const Mode mode : wanted) {
        if (!lacks(group, mode)) continue;
        if (!best || shapes(group, mode) < shapes(group, *best)) best = mode;
      }
      return best;
    };
    // The menu last of all: `keep` and `full` are enough to plan.
    if (const auto plain = least_known({Mode::full(), Mode::keep()})) return *plain;
    return least_known(menu).value_or(current);
  }

 private:
  const StepLearner& learner_;
  const LearningRequest& request_;
};

void ensure(const std::vector<std::size_t>& layers, Mode wanted, std::vector<Mode>& modes) {
  const bool runs = std::ranges::any_of(
      layers, [&modes, wanted](std::size_t layer) { return modes[layer] == wanted; });
  if (!runs) modes[layers.front()] = wanted;
}

// What a class may run beside `keep` and `full`; all but selective modes without being searched
// for.
std::vector<Mode> menu_of(const StepStructure& structure, std::uint16_t layer_class) {
  std::vector<Mode> modes;
  if (layer_class < structure.menus.size()) {
    for (std::size_t k = 0; k < structure.menus[layer_class].steps.size(); ++k) {
      modes.push_back(Mode::selective(static_cast<std::uint16_t>(k)));
    }
  }
  modes.push_back(Mode::offload());
  return modes;
}

// Gives lacking modes of the menu to layers of the group that teach nothing else and would be kept:
// these modes hold less. Where `keep` is not on the menu, to layers that would run `full`.
void teach_menu(const Teacher& teacher, Group group, const std::vector<Mode>& menu,
                const std::vector<std::size_t>& layers, std::vector<Mode>& modes) {
  const auto first_of = [&](Mode mode) {
    return std::ranges::find_if(layers, [&](std::size_t layer) { return modes[layer] == mode; });
  };
  std::vector<std::size_t> free;
  const bool keeps = teacher.teaches(Mode::keep(), group.layer_class);
  const Mode kind = keeps ? Mode::keep() : Mode::full();
  const auto teaches = teacher.lacks(group, kind) ? first_of(kind) : layers.end();
  for (auto layer = layers.begin(); layer != layers.end(); ++layer) {
    if (modes[*layer] == kind && layer != teaches) free.push_back(*layer);
  }
  std::size_t next = 0;
  for (const Mode mode : menu) {
    if (!teacher.lacks(group, mode) || first_of(mode) != layers.end()) continue;
    if (next >= free.size()) return;
    modes[free[next++]] = mode;
  }
}

}  // namespace

std::vector<Mode> learning_modes(const StepLearner& learner, const StepStructure& structure,
                                 const LearningRequest& request) {
  std::vector<Mode> modes(request.planned.begin(), request.planned.end());
  modes.resize(structure.layers.size(), request.default_mode);
  std::map<std::pair<std::uint16_t, std::uint8_t>, std::vector<std::size_t>> groups;
  std::map<std::uint16_t, std::size_t> class_sizes;
  for (std::size_t i = 0; i < structure.layers.size(); ++i) {
    const StepStructure::Layer& layer = structure.layers[i];
    groups[{layer.layer_class, SegmentKey::group_of(layer.variant)}].push_back(i);
    ++class_sizes[layer.layer_class];
  }
  const Teacher teacher(learner, request);
  for (auto& [name, layers] : groups) {
    const Group group{name.first, name.second};
    // What the step's first layer makes and its siblings do not shows where it runs as they do: it
    // is the last to run anything else.
    if (layers.front() == 0) std::rotate(layers.begin(), layers.begin() + 1, layers.end());
    if (layers.size() == 1) {
      // One odd layer of a larger class is served by its siblings.
      if (class_sizes[group.layer_class] > 1) continue;
      modes[layers.front()] =
          teacher.alternate(group, modes[layers.front()], menu_of(structure, group.layer_class));
      continue;
    }
    if (teacher.lacks(group, Mode::keep())) ensure(layers, Mode::keep(), modes);
    if (teacher.lacks(group, Mode::full())) {
      const bool only_keep = std::ranges::count_if(layers, [&modes](std::size_t layer) {
                               return modes[layer] == Mode::keep();
                             }) == 1;
      // Do not take the one layer that teaches `keep`.
      const bool front_teaches =
          only_keep && modes[layers.front()] == Mode::keep() && teacher.lacks(group, Mode::keep());
      const std::vector<std::size_t> rest(layers.begin() + (front_teaches ? 1 : 0), layers.end());
      ensure(rest, Mode::full(), modes);
    }
    teach_menu(teacher, group, menu_of(structure, group.layer_class), layers, modes);
  }
  return modes;
}

bool lacks_menu_modes(const StepLearner& learner, const StepStructure& structure,
                      const LearningRequest& request) {
  const Teacher teacher(learner, request);
  std::map<std::pair<std::uint16_t, std::uint8_t>, std::size_t> sizes;
  std::map<std::uint16_t, std::size_t> class_sizes;
  for (const StepStructure::Layer& layer : structure.layers) {
    ++sizes[{layer.layer_class, SegmentKey::group_of(layer.variant)}];
    ++class_sizes[layer.layer_class];
  }
  for (const auto& [name, size] : sizes) {
    if (size == 1 && class_sizes[name.first] > 1) continue;  // served by its siblings
    for (const Mode mode : menu_of(structure, name.first)) {
      if (teacher.lacks({name.first, name.second}, mode)) return true;
    }
  }
  return false;
}

}  // namespace pudica
