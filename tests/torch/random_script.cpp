#include "torch/random_script.h"

#include <array>
#include <random>

#include <ATen/ATen.h>

#include "torch/random_script_world.h"

namespace pudica::testing {

RandomScript::RandomScript(std::uint64_t seed) : seed_(seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&random](std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
  };
  const std::size_t models = 2 + pick(2);
  for (std::size_t i = 0; i < models; ++i) layers_.push_back(1 + pick(4));
  has_noise_ = pick(4) != 0;
  // Forwards and backwards more often than the rest.
  std::vector<Kind> kinds(8, Kind::kForward);
  kinds.insert(kinds.end(), 6, Kind::kBackward);
  const Kind last = has_noise_ ? Kind::kSetBudget : Kind::kBackwardAtOnce;
  for (auto kind = static_cast<int>(Kind::kForwardThatThrows); kind <= static_cast<int>(last);
       ++kind) {
    kinds.push_back(static_cast<Kind>(kind));
  }
  constexpr std::size_t kTensors = 4;
  const std::size_t length = 8 + pick(24);
  for (std::size_t i = 0; i < length; ++i) {
    Operation one;
    one.kind = kinds[pick(kinds.size())];
    one.model = pick(models);
    one.other = pick(models);
    one.tensor = pick(kTensors);
    one.rows = 1 + static_cast<std::int64_t>(pick(5));
    one.reads_tensor = pick(2) == 0;
    one.detaches = pick(3) == 0;
    one.begins_step = pick(8) != 0;
    one.on_thread = pick(8) == 0;
    one.by_halves = pick(2) == 0;
    one.unproven = pick(4) == 0;
    one.choice = pick(1000);
    one.variant = pick(6);
    operations_.push_back(one);
  }
}

RandomScript::Seen RandomScript::run(How how) const {
  at::manual_seed(seed_);
  World world(*this, how);
  for (const Operation& one : operations_) world.run(one);
  return world.end();
}

std::string RandomScript::in_words(const Operation& one) {
  constexpr std::array kNames{"forward",
                              "forward that throws",
                              "forward of two",
                              "forward inside",
                              "forward disturbed",
                              "no-grad forward",
                              "backward",
                              "backward, retained",
                              "backward that throws",
                              "backward of two",
                              "backward disturbed",
                              "gradients",
                              "double backward",
                              "begin step",
                              "end step",
                              "optimizer step",
                              "drop graph",
                              "clear gradients",
                              "attach anew",
                              "detach",
                              "set budget",
                              "both at once",
                              "handles at once",
                              "drops at once",
                              "backward at once"};
  std::string text = kNames.at(static_cast<std::size_t>(one.kind));
  text += " of " + std::to_string(one.model) + " and " + std::to_string(one.other);
  text += ", tensor " + std::to_string(one.tensor) + ", rows " + std::to_string(one.rows);
  if (one.reads_tensor) text += one.detaches ? ", reads it detached" : ", reads it";
  if (!one.begins_step) text += ", no step";
  if (one.on_thread) text += ", on a thread";
  if (one.by_halves) text += ", by halves";
  if (one.unproven) text += ", unproven";
  return text + ", choice " + std::to_string(one.choice) + "/" + std::to_string(one.variant);
}

std::string RandomScript::text() const {
  std::string text = "script " + std::to_string(seed_) + ", layers";
  for (const std::size_t count : layers_) text += " " + std::to_string(count);
  text += has_noise_ ? ", with noise\n" : "\n";
  for (const Operation& one : operations_) text += in_words(one) + "\n";
  return text;
}

}  // namespace pudica::testing
