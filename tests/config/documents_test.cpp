// Goal: the four places that name the keys (reader, default file, schema, documentation) agree.
// Method: the reader's own list is the judge; each document is reduced to path -> default.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "config/config.h"

namespace pudica {
namespace {

using nlohmann::json;
using Defaults = std::map<std::string, json>;

std::string read_file(const std::string& relative) {
  std::ifstream file(std::string(std::getenv("PUDICA_SOURCE_DIR")) + "/" + relative);
  EXPECT_TRUE(file.is_open()) << relative;
  return {std::istreambuf_iterator<char>(file), {}};
}

Defaults known() {
  Defaults out;
  for (const ConfigKey& key : config_keys()) out[key.path] = json::parse(key.default_json);
  return out;
}

TEST(ConfigDocuments, DefaultFileHasEveryKeyWithItsDefault) {
  Defaults found;
  const json file = json::parse(read_file("configs/default.json"));
  for (const auto& [name, value] : file.items()) {
    if (!value.is_object()) {
      found[name] = value;
      continue;
    }
    for (const auto& [inner, inner_value] : value.items()) found[name + "." + inner] = inner_value;
  }
  EXPECT_EQ(found, known());
}

TEST(ConfigDocuments, SchemaHasEveryKeyWithItsDefault) {
  Defaults found;
  const json schema = json::parse(read_file("configs/pudica.schema.json"));
  EXPECT_EQ(schema.at("additionalProperties"), false);
  for (const auto& [name, value] : schema.at("properties").items()) {
    if (!value.contains("properties")) {
      found[name] = value.at("default");
      continue;
    }
    EXPECT_EQ(value.at("additionalProperties"), false) << name;
    for (const auto& [inner, inner_value] : value.at("properties").items()) {
      found[name + "." + inner] = inner_value.at("default");
    }
  }
  EXPECT_EQ(found, known());
}

TEST(ConfigDocuments, SchemaBoundsAreTheReadersBounds) {
  const json schema = json::parse(read_file("configs/pudica.schema.json")).at("properties");
  const std::regex integer_range("([0-9]+) to ([0-9]+)");
  int checked = 0;
  for (const ConfigKey& key : config_keys()) {
    std::smatch match;
    if (key.type != "integer" || !std::regex_match(key.range, match, integer_range)) continue;
    const std::size_t dot = key.path.find('.');
    const std::string outer = key.path.substr(0, dot);
    const std::string inner = key.path.substr(dot + 1);
    const json& entry = schema.at(outer).at("properties").at(inner);
    EXPECT_EQ(entry.at("minimum"), std::stoll(match[1])) << key.path;
    EXPECT_EQ(entry.at("maximum"), std::stoll(match[2])) << key.path;
    for (const long long value : {std::stoll(match[1]) - 1, std::stoll(match[2]) + 1}) {
      const json refused{{outer, {{inner, value}}}};
      EXPECT_FALSE(parse_config(refused.dump(), "bounds").ok()) << refused;
    }
    ++checked;
  }
  EXPECT_EQ(checked, 6);
}

TEST(ConfigDocuments, TableNamesEveryKeyWithTypeRangeUnitAndDefault) {
  const std::string text = read_file("docs/configuration.md");
  for (const ConfigKey& key : config_keys()) {
    const std::string unit = key.unit.empty() ? " " : " " + key.unit + " ";
    const std::string row = "| `" + key.path + "` | " + key.type + " | " + key.range + " |" + unit +
                            "| `" + key.default_json + "` |\n";
    EXPECT_NE(text.find(row), std::string::npos) << "expected the row " << row;
  }
  const std::regex row_start("\n\\| `([a-z_.]+)` \\|");
  const Defaults keys = known();
  for (std::sregex_iterator row(text.begin(), text.end(), row_start), end; row != end; ++row) {
    EXPECT_TRUE(keys.contains((*row)[1])) << (*row)[1] << " is documented but not a key";
  }
}

}  // namespace
}  // namespace pudica
