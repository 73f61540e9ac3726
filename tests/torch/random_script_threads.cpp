// What a random script's threads do at the same time.
#include <array>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>

#include <torch/csrc/autograd/autograd.h>

#include "torch/random_script_world.h"

namespace pudica::testing {
namespace {

// Steps of one model that neither know nor care what happens beside them.
void train_steps(ScriptModel& model, std::int64_t rows, RandomScript::Seen& seen) {
  for (int step = 0; step < 3; ++step) {
    const at::Tensor input = at::full({rows, kScriptColumns}, .1 * (step + 1));
    model.begin_step(input);
    const at::Tensor output = model.forward(input);
    seen.push_back(bytes_of(output));
    torch::autograd::backward({output.pow(2).mean()});
    if (model.handle && step != 1) static_cast<void>(model.handle->end_step());
  }
}

}  // namespace

// Each on a thread of its own, without noise: then neither can tell that the other is there.
void RandomScript::World::train_beside(const Operation& one,
                                       const std::function<void(Seen&)>& other) {
  std::array<Seen, 2> seen;
  const auto contained = [](Seen& mine, const std::function<void(Seen&)>& act) {
    try {
      act(mine);
    } catch (const std::exception&) {
      mine.emplace_back("threw");
    }
  };
  std::thread ours(contained, std::ref(seen[0]),
                   [&](Seen& mine) { train_steps(models_[one.model], one.rows, mine); });
  std::thread theirs(contained, std::ref(seen[1]), other);
  ours.join();
  theirs.join();
  for (Seen& one_seen : seen) {
    for (std::string& bytes : one_seen) seen_.push_back(std::move(bytes));
  }
  note_gradients();
}

void RandomScript::World::handles_at_once(const Operation& one) {
  train_beside(one, [&](Seen& seen) {
    ScriptModel& model = models_[one.other];
    for (std::size_t i = 0; i < 3; ++i) {
      if (model.handle && (one.variant + i) % 2 == 0) model.handle->detach();
      train_steps(model, one.rows, seen);
      model.handle.reset();
      attach_model(one.other, one.choice + i);
    }
  });
}

// Of a graph that has no parameter of the model that trains, and no callback.
void RandomScript::World::backward_at_once(const Operation& one) {
  const Alive* const found = find(one);
  if (found == nullptr || hooks_to_come_ > 0) return;
  if ((found->models >> one.model & 1U) != 0) return;
  const at::Tensor output = found->output;
  train_beside(one, [&](Seen&) { torch::autograd::backward({output.pow(2).mean()}); });
}

void RandomScript::World::perform_at_once(const Operation& one) {
  if (one.model == one.other || script_.has_noise_) return;
  if (one.kind == Kind::kHandlesAtOnce) return handles_at_once(one);
  if (one.kind == Kind::kBackwardAtOnce) return backward_at_once(one);
  if (one.kind == Kind::kDropsAtOnce) {
    return train_beside(one, [&](Seen&) {
      while (!alive_.empty()) alive_.pop_back();
    });
  }
  train_beside(one, [&](Seen& seen) { train_steps(models_[one.other], one.rows, seen); });
}

}  // namespace pudica::testing
