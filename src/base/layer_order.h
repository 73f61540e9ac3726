// Layers that a step leaves out (layer drop): which of the planned ones a step's calls are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pudica/policy.h"

namespace pudica {

// Classes of layers, in execution order.
using LayerOrder = std::span<const std::uint16_t>;

[[nodiscard]] std::vector<std::uint16_t> order_of(const StepStructure& structure);

// The layers of a step, with where in its class each of them stands.
[[nodiscard]] std::vector<StepStructure::Layer> layers_of(LayerOrder order);

// The place in `planned` of a call of `layer_class`, when the call before it took the place below
// `from`: the next one of its class, or `from` where there is none (it may be beyond the end).
// Linear in the places left out.
[[nodiscard]] std::size_t next_place(LayerOrder planned, std::uint16_t layer_class,
                                     std::size_t from);

// The places of all calls of a step.
[[nodiscard]] std::vector<std::size_t> places_in(LayerOrder planned, LayerOrder step);

// Whether `step` is `planned` with none or some of its layers left out.
[[nodiscard]] bool is_part_of(LayerOrder step, LayerOrder planned);

// The shortest order that both are parts of. Time and memory: the product of their lengths.
[[nodiscard]] std::vector<std::uint16_t> merged_order(LayerOrder left, LayerOrder right);

}  // namespace pudica
