// Values of the core as JSON values: shared by the writers of this folder.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "pudica/controller.h"
#include "pudica/layer_profile.h"
#include "pudica/mode.h"
#include "pudica/policy.h"

namespace pudica::inspect {

// Keeps the order in which fields are written.
using Json = nlohmann::ordered_json;

// 0 for what JSON cannot say.
double finite(double value);
Json to_json(const std::vector<Mode>& modes);
Json to_json(const StepStructure& structure);
Json to_json(const SegmentObservation& observation);
// Kind, class and mode of a segment; the class's number only.
Json to_json(const SegmentKey& key);
Json to_json(const Plan& plan);

// Errors are thrown as Json::exception, those of text_limits.h too.
Json parse(std::string_view text);
// As `parse`, for long lists: elements of the root's list `list` go to `take` one by one as they
// are read, and the list is empty in what is returned. Holds one element at a time.
using ElementSink = std::function<void(const Json& element)>;
Json parse_streaming(std::string_view text, std::string_view list, const ElementSink& take);

// Text of a value; never throws. Indented where `indent` >= 0.
std::string dump(const Json& value, int indent);

}  // namespace pudica::inspect
