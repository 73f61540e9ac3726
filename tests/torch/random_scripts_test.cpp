// Property: in whatever order forwards, backwards, steps, exceptions, threads and handles of
// several models come, nothing crashes, and all bits are those of the same script without pudica.
#include <cstdint>
#include <cstdlib>

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

void run_scripts(std::uint64_t first, std::uint64_t scripts) {
  install_meter();
  at::set_num_threads(1);
  for (std::uint64_t seed = first; seed < first + scripts; ++seed) {
    const RandomScript script(seed);
    const RandomScript::Seen plain = script.run(/*attached=*/false);
    const RandomScript::Seen attached = script.run(/*attached=*/true);
    std::size_t same = 0;
    while (same < plain.size() && same < attached.size() && plain[same] == attached[same]) ++same;
    ASSERT_TRUE(same == plain.size() && same == attached.size())
        << "differs at " << same << " of " << plain.size() << "\n"
        << script.text();
  }
}

// PUDICA_RANDOM_SCRIPTS: as many, from the seed PUDICA_RANDOM_SEED on.
TEST(RandomScripts, EndAsWithoutPudica) {
  run_scripts(number_from("PUDICA_RANDOM_SEED", 1), number_from("PUDICA_RANDOM_SCRIPTS", 300));
}

}  // namespace
}  // namespace pudica::testing
