// Goal: a kernel that does not compile, or has lost an entry, is found where there is no device.
// Method: the embedded source through NVRTC for real capabilities; a cubin is an ELF file with a
// section .text.NAME an entry, PTX names them in plain text.
#include "cuda/runtime_compiler.h"

#include <array>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/bits_kernels.h"

namespace pudica::hooks {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::array<const char*, 6> kEntries{"pudica_pack_1",   "pudica_pack_2",
                                              "pudica_pack_4",   "pudica_unpack_1",
                                              "pudica_unpack_2", "pudica_unpack_4"};

class RuntimeCompilerTest : public ::testing::Test {
 protected:
  static const RuntimeCompiler& nvrtc() {
    static const auto opened = RuntimeCompiler::open(PUDICA_NVRTC);
    return opened.value();
  }
};

class KernelsOfBits : public RuntimeCompilerTest, public ::testing::WithParamInterface<int> {};

TEST_P(KernelsOfBits, AreCompiledForTheDevice) {
  const auto code = nvrtc().compile(bits_source(), GetParam());
  ASSERT_TRUE(code.has_value()) << code.error().message;
  EXPECT_FALSE(code->is_ptx);
  EXPECT_THAT(code->image, StartsWith("\177ELF"));
  for (const std::string entry : kEntries) {
    // With the ends of a string table's entry: pack is in unpack.
    EXPECT_THAT(code->image, HasSubstr('\0' + (".text." + entry) + '\0'));
  }
}

INSTANTIATE_TEST_SUITE_P(Capabilities, KernelsOfBits, ::testing::Values(75, 80, 86, 89, 90));

TEST_F(RuntimeCompilerTest, ANewerDeviceGetsPtx) {
  const auto code = nvrtc().compile(bits_source(), 999);
  ASSERT_TRUE(code.has_value()) << code.error().message;
  EXPECT_TRUE(code->is_ptx);
  for (const std::string entry : kEntries) {
    EXPECT_THAT(code->image, HasSubstr(".entry " + entry + "("));
  }
}

TEST_F(RuntimeCompilerTest, AnOlderDeviceIsAnError) {
  const auto code = nvrtc().compile(bits_source(), 10);
  ASSERT_FALSE(code.has_value());
  EXPECT_THAT(code.error().message, HasSubstr("up to 10"));
}

TEST_F(RuntimeCompilerTest, WhatIsWrongIsSaid) {
  const std::array<EmbeddedFile, 1> wrong{
      {{"wrong.cu", "wrong.cu", "extern \"C\" __global__ void f() { missing_name(); }"}}};
  const auto code = nvrtc().compile(wrong, 80);
  ASSERT_FALSE(code.has_value());
  EXPECT_THAT(code.error().message, HasSubstr("wrong.cu(1)"));
  EXPECT_THAT(code.error().message, HasSubstr("missing_name"));
}

TEST_F(RuntimeCompilerTest, AHeaderThatIsNotEmbeddedIsSaid) {
  const auto code = nvrtc().compile(bits_source().first(1), 80);
  ASSERT_FALSE(code.has_value());
  EXPECT_THAT(code.error().message, HasSubstr("cuda/bits_lane.h"));
}

TEST_F(RuntimeCompilerTest, ALibraryThatIsNotThereOrIsAnother) {
  const auto none = RuntimeCompiler::open("libno_such_compiler.so");
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message, HasSubstr("libno_such_compiler.so"));
  const auto other = RuntimeCompiler::open("libm.so.6");
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().message, HasSubstr("nvrtcCreateProgram"));
}

}  // namespace
}  // namespace pudica::hooks
