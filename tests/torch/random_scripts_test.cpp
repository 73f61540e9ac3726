// Property: in whatever order forwards, backwards, steps, exceptions, threads and handles of
// several models come, nothing crashes, and all bits are those of the same script without pudica.
#include <cstdint>
#include <cstdlib>
#include <string>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "pudica/torch.h"
#include "torch/random_script.h"

namespace pudica::testing {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// The operation after which the two differ, and where after it; empty if they never do.
std::string first_difference(const RandomScript::Seen& plain, const RandomScript::Seen& attached) {
  std::string operation;
  std::size_t since = 0;
  for (std::size_t i = 0; i < plain.size() || i < attached.size(); ++i) {
    if (i >= plain.size() || i >= attached.size() || plain[i] != attached[i]) {
      return "what is seen at " + std::to_string(since) + " of: " + operation;
    }
    since = plain[i].find(", tensor ") == std::string::npos ? since + 1 : 0;
    if (since == 0) operation = plain[i];
  }
  return "";
}

void run_scripts(std::uint64_t first, std::uint64_t scripts) {
  install_meter();
  at::set_num_threads(1);
  for (std::uint64_t seed = first; seed < first + scripts; ++seed) {
    const RandomScript script(seed);
    const RandomScript::Seen plain = script.run(RandomScript::How::kPlainly);
    // Must end, and leave nothing behind that the next run would notice.
    if (seed % 4 == 0) static_cast<void>(script.run(RandomScript::How::kFailingAgain));
    const RandomScript::Seen attached = script.run(RandomScript::How::kAttached);
    ASSERT_EQ(first_difference(plain, attached), "") << script.text();
  }
}

// PUDICA_RANDOM_SCRIPTS: as many, from the seed PUDICA_RANDOM_SEED on.
TEST(RandomScripts, EndAsWithoutPudica) {
  run_scripts(number_from("PUDICA_RANDOM_SEED", 1), number_from("PUDICA_RANDOM_SCRIPTS", 300));
}

}  // namespace
}  // namespace pudica::testing
