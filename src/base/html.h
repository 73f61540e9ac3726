// Text made safe for HTML pages, and pages filled in from parts.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace pudica {

// Safe between tags and in attributes.
std::string escape_html(std::string_view text);

// JSON text that cannot end the script element around it. Requires: valid JSON text.
std::string script_safe_json(std::string_view json);

// The page with each {{name}} replaced once; what is put in is not read again. Throws
// std::out_of_range for a name without a part.
std::string fill_page(std::string_view page, const std::map<std::string, std::string>& parts);

}  // namespace pudica
