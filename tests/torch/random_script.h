// What somebody's script may do with several attached models: forwards, backwards, steps,
// exceptions and handles that come and go, in an order drawn at random. For property tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pudica::testing {

// Two or three models and a list of operations on them, all told by the seed.
class RandomScript {
 public:
  explicit RandomScript(std::uint64_t seed);

  // What the script saw, in order: the bytes of outputs and gradients, and which operations threw.
  // Equal for equal seeds, however the models were attached.
  using Seen = std::vector<std::string>;

  // `attached`: every model has a handle while the script does not take it away. Else the same
  // operations run plainly.
  [[nodiscard]] Seen run(bool attached) const;
  // The operations, to be read where a test fails.
  [[nodiscard]] std::string text() const;

 private:
  enum class Kind : std::uint8_t {
    kForward,
    kForwardThatThrows,
    kForwardOfTwo,      // their layers in turn
    kForwardInside,     // one model's forward in a layer of another's
    kForwardDisturbed,  // a layer's function does something to a handle
    kForwardNoGrad,
    kBackward,
    kBackwardRetaining,
    kBackwardOfTwo,      // of two outputs at once
    kBackwardDisturbed,  // a hook of its gradient does something to a handle
    kGradients,          // autograd::grad, nothing accumulated
    kDoubleBackward,
    kBeginStep,
    kEndStep,
    kOptimizerStep,
    kDropGraph,
    kClearGradients,
    kAttachAnew,
    kDetach,
    kSetBudget,
    kBothAtOnce,  // two models train on two threads at the same time
  };
  struct Operation {
    Kind kind = Kind::kForward;
    std::size_t model = 0;
    std::size_t other = 0;   // model
    std::size_t tensor = 0;  // of those that are alive, modulo their number
    std::int64_t rows = 2;
    bool reads_tensor = false;  // the input is an output from before
    bool detaches = false;      // from its graph
    bool begins_step = true;
    bool on_thread = false;  // of its own, waited for
    std::size_t choice = 0;  // of a budget or policy; of the layer that throws
  };
  class World;

  [[nodiscard]] static std::string in_words(const Operation& one);

  std::uint64_t seed_;
  std::vector<std::size_t> layers_;  // by model
  bool has_noise_ = true;            // dropout in layers; none where threads run at once
  std::vector<Operation> operations_;
};

}  // namespace pudica::testing
