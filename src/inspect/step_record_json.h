// A step record as a JSON value, for texts that hold records inside.
#pragma once

#include "inspect/json.h"
#include "inspect/json_values.h"

namespace pudica::inspect {

Json to_json(const StepRecord& record);
// Errors: as parse_step_record.
Result<StepRecord> read_step_record(const Json& root);

}  // namespace pudica::inspect
