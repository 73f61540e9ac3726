// report.html: one run on one page that needs nothing else, no network either.
#pragma once

#include <string>
#include <string_view>

#include "train/results.h"

namespace pudica::train {

// The whole page.
std::string report_html(const RunResult& run);

// Text made safe between tags and in attributes.
std::string escape_html(std::string_view text);

// The fixed parts, made from src/train/report at build time. The page holds {{name}} for each part
// that report_html fills in.
extern const std::string_view kReportPage;
extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

}  // namespace pudica::train
