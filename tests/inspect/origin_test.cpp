#include "inspect/origin.h"

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pudica {
namespace {

using nlohmann::json;

TEST(Origin, NamesTheRevisionOfTheBuildOrNone) {
  const BuildRevision built = build_revision();
  const json origin = describe_origin({"program"});
  if (built.revision.empty()) {
    EXPECT_TRUE(origin["revision"].is_null());
    EXPECT_TRUE(origin["modified"].is_null());
  } else {
    EXPECT_THAT(built.revision, testing::MatchesRegex("[0-9a-f]{40}"));
    EXPECT_EQ(origin["revision"], built.revision);
    EXPECT_EQ(origin["modified"], built.modified);
  }
}

TEST(Origin, NamesTheCommandWithoutFoldersOfTheMachine) {
  const std::string root = PUDICA_SOURCE_FOLDER;
  const json origin = describe_origin(
      {root + "/build/bin/pudica-train", "--data", "lengths:" + root + "/data/qqp.csv:len"});
  EXPECT_EQ(origin["command"], "pudica-train --data lengths:data/qqp.csv:len");
}

TEST(Origin, NamesTheEnvironmentThatChangesWhatIsMeasured) {
  setenv("ATEN_CPU_CAPABILITY", "avx2", 1);
  setenv("OMP_NUM_THREADS", "7", 1);
  setenv("PUDICA_TEST_OTHER", "x", 1);
  const json environment = describe_origin({"p"}, {{"OMP_NUM_THREADS", "2"}})["environment"];
  EXPECT_EQ(environment["ATEN_CPU_CAPABILITY"], "avx2");
  EXPECT_EQ(environment["OMP_NUM_THREADS"], "2") << "what the child was given wins";
  EXPECT_FALSE(environment.contains("PUDICA_TEST_OTHER"));
  unsetenv("ATEN_CPU_CAPABILITY");
  unsetenv("OMP_NUM_THREADS");
  unsetenv("PUDICA_TEST_OTHER");
}

TEST(Origin, DescribesMachineAndVersions) {
  const json machine = describe_machine();
  for (const char* key :
       {"cpu", "cores", "memory_bytes", "instruction_set", "system", "load_1min"}) {
    EXPECT_TRUE(machine.contains(key)) << key;
  }
  EXPECT_GE(machine["cores"].get<int>(), 1);
  const json versions = describe_versions();
  EXPECT_THAT(versions["compiler"].get<std::string>(), testing::MatchesRegex("[a-z+]+ [0-9].*"));
}

}  // namespace
}  // namespace pudica
