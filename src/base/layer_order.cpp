#include "base/layer_order.h"

#include <algorithm>
#include <set>

namespace pudica {

std::vector<std::uint16_t> order_of(const StepStructure& structure) {
  std::vector<std::uint16_t> order;
  order.reserve(structure.layers.size());
  for (const StepStructure::Layer& layer : structure.layers) order.push_back(layer.layer_class);
  return order;
}

std::vector<StepStructure::Layer> layers_of(LayerOrder order) {
  std::vector<StepStructure::Layer> layers;
  layers.reserve(order.size());
  for (const std::uint16_t layer_class : order) layers.push_back({layer_class, 0});
  std::set<std::uint16_t> begun;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool first = begun.insert(layers[i].layer_class).second;
    if (first && i > 0) layers[i].variant |= SegmentKey::kFirstOfClass;
  }
  std::set<std::uint16_t> ended;
  for (std::size_t i = layers.size(); i-- > 0;) {
    const bool last = ended.insert(layers[i].layer_class).second;
    if (last) layers[i].variant |= SegmentKey::kLastOfClass;
  }
  return layers;
}

std::size_t next_place(LayerOrder planned, std::uint16_t layer_class, std::size_t from) {
  for (std::size_t i = from; i < planned.size(); ++i) {
    if (planned[i] == layer_class) return i;
  }
  return from;
}

std::vector<std::size_t> places_in(LayerOrder planned, LayerOrder step) {
  std::vector<std::size_t> places;
  places.reserve(step.size());
  std::size_t from = 0;
  for (const std::uint16_t layer_class : step) {
    places.push_back(next_place(planned, layer_class, from));
    from = places.back() + 1;
  }
  return places;
}

bool is_part_of(LayerOrder step, LayerOrder planned) {
  std::size_t matched = 0;
  for (std::size_t i = 0; i < planned.size() && matched < step.size(); ++i) {
    if (planned[i] == step[matched]) ++matched;
  }
  return matched == step.size();
}

std::vector<std::uint16_t> merged_order(LayerOrder left, LayerOrder right) {
  // longest[i][j]: of the longest order that is part of both left[i..] and right[j..].
  const std::size_t width = right.size() + 1;
  std::vector<std::uint32_t> longest((left.size() + 1) * width, 0);
  for (std::size_t i = left.size(); i-- > 0;) {
    for (std::size_t j = right.size(); j-- > 0;) {
      const std::size_t at = i * width + j;
      longest[at] = left[i] == right[j] ? longest[at + width + 1] + 1
                                        : std::max(longest[at + width], longest[at + 1]);
    }
  }
  std::vector<std::uint16_t> merged;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < left.size() && j < right.size()) {
    if (left[i] == right[j]) {
      merged.push_back(left[i++]);
      ++j;
    } else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) {
      merged.push_back(left[i++]);
    } else {
      merged.push_back(right[j++]);
    }
  }
  merged.insert(merged.end(), left.begin() + static_cast<std::ptrdiff_t>(i), left.end());
  merged.insert(merged.end(), right.begin() + static_cast<std::ptrdiff_t>(j), right.end());
  return merged;
}

}  // namespace pudica
