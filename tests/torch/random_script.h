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

  // What the script did and saw, in order: operations, the bytes of outputs and gradients, and what
  // threw.
  // Equal for equal seeds, however the models were attached.
  using Seen = std::vector<std::string>;

  enum class How : std::uint8_t {
    kPlainly,
    kAttached,  // every model has a handle while the script does not take it away
    // Attached, and layers that are run again throw, or give something else: what the script sees
    // is not that of the others.
    kFailingAgain,
  };

  [[nodiscard]] Seen run(How how) const;
  // The operations, to be read where a test fails.
  [[nodiscard]] std::string text() const;

 private:
  enum class Kind : std::uint8_t {
    kForward,
    kForwardThatThrows,
    kForwardOfTwo,      // their layers in turn
    kForwardInside,     // one model's forward in a layer of another's
    kForwardDisturbed,  // a layer's function does something else, once
    kForwardNoGrad,
    kBackward,
    kBackwardRetaining,
    kBackwardThatThrows,  // a hook of a gradient does
    kBackwardOfTwo,       // of two outputs at once
    kBackwardDisturbed,   // a hook of a gradient does something else, once
    kGradients,           // autograd::grad, nothing accumulated
    kDoubleBackward,
    kBeginStep,
    kEndStep,
    kOptimizerStep,
    kDropGraph,
    kClearGradients,
    kAttachAnew,
    kDetach,
    kSetBudget,
    kBothAtOnce,      // two models train on two threads at the same time
    kHandlesAtOnce,   // one trains while another's handles come and go on a thread
    kDropsAtOnce,     // one trains while graphs are dropped on a thread
    kBackwardAtOnce,  // one trains while a backward of another runs on a thread
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
    bool on_thread = false;   // of its own, waited for
    bool by_halves = false;   // layers are entered and left
    bool unproven = false;    // see LayerOptions
    std::size_t choice = 0;   // of a budget or policy; of the layer that throws
    std::size_t variant = 0;  // of what the kind does
  };
  class World;

  [[nodiscard]] static std::string in_words(const Operation& one);

  std::uint64_t seed_;
  std::vector<std::size_t> layers_;  // by model
  bool has_noise_ = true;            // dropout in layers; none where threads run at once
  std::vector<Operation> operations_;
};

}  // namespace pudica::testing
