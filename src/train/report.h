// report.html: one run on one page that needs nothing else, no network either.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "train/results.h"

namespace pudica::train {

// The whole page.
std::string report_html(const RunResult& run);

// The style's colour of a policy, 0 to 9: `pudica` always has the same.
std::size_t colour_of(const std::string& policy, std::size_t index);

// The fixed parts, made from src/train/report and src/report at build time. The page holds {{name}}
// for each part that report_html fills in.
extern const std::string_view report_page;
extern const std::string_view report_style;
extern const std::string_view report_script;

}  // namespace pudica::train
