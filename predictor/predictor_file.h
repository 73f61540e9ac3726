// The learned state of a predictor as text: samples and time fits, from which the models are made
// again. One version line, one block a segment, and a checksum at the end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "predictor/online_predictor.h"
#include "pudica/result.h"

namespace pudica::predictor {

// FNV-1a, 64 bits.
std::uint64_t checksum(std::string_view text);
// `body` with the line of its checksum.
std::string with_checksum(std::string body);

// Deterministic: equal models give equal text.
std::string write_models(const SegmentModels& models);

// Errors: kCorrupt for whatever write_models() did not write, other versions included. Memory in
// proportion to the text at most.
Result<SegmentModels> read_models(std::string_view text, const PredictorOptions& options);

}  // namespace pudica::predictor
