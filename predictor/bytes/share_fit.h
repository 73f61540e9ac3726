// Sizes that are a share of a product, in whole elements: the tokens that are masked, kept or
// sampled (0.15 of a batch's, rounded), and all that is computed of them.
#pragma once

#include <vector>

#include "predictor/bytes/event_fit.h"

namespace pudica::predictor {

// Forms of unit * round(p / q * m), rounded up, down, or to the nearest (ties up, down or to even),
// that give every size, in order of preference: the unit is the greatest common divisor of the
// sizes, or a half, a third or a quarter of it, m a monomial of the shape, p / q the fraction of
// the smallest denominator. Where fractions are so many that one of them would by chance, those
// near both ends of what the sizes leave open follow. Sizes that an allocator has rounded up have
// lost their units: none. At least five distinct sizes are required for a result.
std::vector<Form> match_shares(const SizeSamples& samples);

}  // namespace pudica::predictor
