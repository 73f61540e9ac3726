// The menu of a layer class: which saved tensors to drop, cheapest first, found from one call.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Storage.h>

#include "base/whole_vectors.h"
#include "pudica/policy.h"
#include "torch/eviction_graph.h"
#include "torch/menu_rules.h"
#include "torch/tape.h"

namespace pudica::hooks {

// One selective mode: what it drops and what recovering costs. Saved tensors are named by the
// number of the slot that saved them.
struct MenuStep {
  std::vector<std::uint32_t> dropped;  // recovered by operators; one slot a storage
  std::vector<std::uint32_t> packed;   // held as bits
  std::int64_t freed_bytes = 0;        // at the shape of the collecting call
  double seconds = 0;                  // recovery at that call, forward's operators' times
  double work_share = 1;               // recovery's, of the call's work (operator_work.h)
  std::vector<std::string> operators;  // run again, in order
};

// "frees 12.3 MiB at the shape first seen; runs again: gelu, native_layer_norm (1.2 ms)"
std::string to_string(const MenuStep& step);

// Immutable once made.
struct ClassMenu {
  static constexpr std::uint64_t kNone = StepStructure::Menu::kNone;
  std::uint64_t id = 0;  // of its operators and steps: equal in every process; more than kNone
  std::uint64_t signature = 0;          // of the operators it is for
  std::vector<std::uint64_t> sequence;  // Tape::sequence() of them
  std::size_t slots = 0;                // that such a call fills
  // A slot that may go, or become bits, as it is saved: what had been saved before it gave it back
  // to the bit, and its bytes did not change afterwards. True of calls with that history alone.
  struct Early {
    std::uint32_t slot = 0;
    std::uint64_t history = 0;  // Tape::history() when it was saved
  };
  std::vector<Early> early;
  std::vector<std::string> keep_operators;  // of the rules
  std::vector<MenuStep> steps;       // selective:0, selective:1, ...: ever more bytes for more work
  std::vector<std::uint32_t> order;  // every candidate, least work per byte first
  std::vector<double> order_price_us;  // microseconds per byte of each, in that order
  EvictionNodes nodes;  // likewise, where a rule of eviction asks for them; null elsewhere
};

// What a collecting call shows; `slot_storage` and `histories` by slot, `bytes_of` by storage.
struct Collection {
  Tape& tape;
  const std::vector<std::int32_t>& slot_storage;
  const std::vector<c10::Storage>& bytes_of;
  const std::vector<std::uint64_t>& histories;  // Tape::history() as each slot was filled
};

// The lower hull of (bytes kept, work) over sets of candidates, at most `most_steps` points; work
// as operator_work.h has it, so that what is chosen does not depend on a clock, nor on the shape
// where the layer's tensors grow alike with it. Candidates reproduce themselves to the bit: each is
// recovered once and compared, and so are those of each point together. Null: nothing can be
// dropped. (menu_finder.cpp)
std::shared_ptr<const ClassMenu> find_menu(const Collection& call, std::size_t most_steps,
                                           const MenuRules& rules = {});

// The same modes for calls that run other operators (attention that pads a mask at some lengths):
// they save as many tensors, and the operators of this call give back what each step drops, what
// came from outside aside. Null: they do not. Masks are packed as the layer ends.
// (menu_reading.cpp)
std::shared_ptr<const ClassMenu> read_menu(const Collection& call, const ClassMenu& menu);

// The tapes of one layer class: collects until its menu is known, and reads it for the other
// sequences of operators that calls turn out to run. Thread-safe.
class ClassTapes {
 public:
  // `evicts`: menus have the nodes that a rule of eviction asks for.
  explicit ClassTapes(MenuRules rules = {}, bool evicts = false)
      : rules_(std::move(rules)), evicts_(evicts) {}

  // The next call of the class is to be collected.
  [[nodiscard]] bool wants_collection() const;
  void collected(const Collection& call);
  // Null: none yet, or none to be had.
  [[nodiscard]] std::shared_ptr<const ClassMenu> menu() const;
  // Likewise, for the operators that the layer at this place of a step of this shape is expected to
  // run: by the shapes at which each reading ran, else what ran at this place last; `strayed`,
  // where a call of this step was not as expected: what ran last.
  [[nodiscard]] std::shared_ptr<const ClassMenu> menu_at(const ShapeKey& shape, std::size_t place,
                                                         bool strayed) const;
  // Likewise, for those that it ran. Null: not read yet, or cannot be.
  [[nodiscard]] std::shared_ptr<const ClassMenu> menu_of(std::uint64_t signature) const;
  // There is a menu, and it was not tried to read it for these operators.
  [[nodiscard]] bool may_be_read(std::uint64_t signature) const;
  std::shared_ptr<const ClassMenu> read(const Collection& call);
  // As a step's structure tells it. `shape`: of the step under way, which is the one in which the
  // menu was found when it is told for the first time. nullopt: it is not known yet.
  [[nodiscard]] std::optional<StepStructure::Menu> told(const ShapeKey& shape);
  // A call at this place of a step of this shape ran the operators that this reading is for, with
  // one of its modes.
  void met_its_like(const ShapeKey& shape, std::size_t place, const ClassMenu& reading);
  // In a step of this shape calls ran others. Twice with none of its like in between: told with the
  // menu. If plans have its modes there all the same, from step to step, the menu is withdrawn.
  void met_strangers(const ShapeKey& shape);

 private:
  static constexpr int kCollections = 2;  // the first one warms caches up
  static constexpr int kMostStrangeSteps = 16;
  static constexpr std::size_t kMostSteps = 5;
  static constexpr std::size_t kMostStrangeShapes = 512;
  static constexpr std::size_t kMostReadings = 8;
  static constexpr std::size_t kMostUnreadable = 64;

  struct Reading {
    std::shared_ptr<const ClassMenu> menu;
    WholeVectors met;  // of the shapes at which it ran
  };

  static std::uint64_t signature_of(const Reading& reading) { return reading.menu->signature; }

  const MenuRules rules_;
  const bool evicts_;
  mutable std::mutex mutex_;
  int collections_ = 0;
  bool searching_ = false;
  int strange_steps_ = 0;                    // in a row, at shapes that were told
  std::vector<ShapeKey> suspects_;           // shapes of strangers that are not told
  std::vector<Reading> readings_;            // as found, then as read for other operators
  std::size_t latest_ = 0;                   // that ran
  std::vector<std::size_t> latest_at_;       // by place
  std::vector<std::uint64_t> unreadable_;    // signatures
  std::optional<StepStructure::Menu> told_;  // of the first
};

}  // namespace pudica::hooks
