#include <string>

#include <gmock/gmock.h>

#include "inspect/json_values.h"

namespace pudica::inspect {
namespace {

// What the library's own builder makes of a text, or its message.
template <typename Parse>
std::string outcome(const std::string& text, const Parse& parse) {
  try {
    return dump(parse(text), -1);
  } catch (const Json::exception& error) {
    return error.what();
  }
}

TEST(JsonParse, ReadsAndRefusesAsTheLibraryDoes) {
  const std::string many = [] {
    std::string text = "{";
    for (int i = 0; i < 300; ++i)
      text += "\"k" + std::to_string(i) + "\":[" + std::to_string(i) + "],";
    return text + "\"last\":{}}";
  }();
  for (const std::string& text :
       {std::string(R"({"b":1,"a":{"d":[1,-2,3.5e3,{"x":null}],"c":true},"b":{"twice":false}})"),
        std::string(R"([18446744073709551615,-9223372036854775808,1e400,"\u00e9\n"])"),
        std::string(R"({"a":1e999})"), std::string("[1,2"), std::string("{\"a\" 1}"),
        std::string("\"\xff\""), std::string(), std::string("null"), std::string("[] []"),
        std::string("[[],{},[{}]]"), std::string(R"({"":{"":[]}})"), many}) {
    EXPECT_EQ(outcome(text, [](const std::string& it) { return parse(it); }),
              outcome(text, [](const std::string& it) { return Json::parse(it); }))
        << text;
  }
}

}  // namespace
}  // namespace pudica::inspect
