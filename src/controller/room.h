// Room: how much of the budget plans may use.
#pragma once

#include <optional>

#include "controller/margin.h"
#include "pudica/bytes.h"

namespace pudica {

// The budget is told twice, by set_budget() and in each step's context: the latest change of either
// holds. What plans may use is it less the margin, as of the latest step: between steps the margin
// may move while the plans that are cached were made for what it was. Not thread-safe.
class Room {
 public:
  explicit Room(double revocation_rate) : margin(revocation_rate) {}

  void set_budget(Bytes bytes) { budget_ = bytes; }
  // A step's context tells `bytes`.
  void told(Bytes bytes);
  [[nodiscard]] Bytes budget() const { return budget_; }  // none: <= 0

  // What a step's plans may use from now on, and what becomes of those that were made for less or
  // more of it.
  struct Change {
    bool forget = false;          // all of them
    std::optional<Bytes> shrink;  // by so much, negative: it grew; nullopt: they may stay
  };
  // As a step begins. nullopt: nothing has changed.
  std::optional<Change> settle();

  // What plans may use of the budget of the latest step that settled, and what is held back of it.
  [[nodiscard]] Bytes available() const { return available_; }
  [[nodiscard]] Bytes margin_in_force() const {
    return is_limited() ? available_budget_ - available_ : Bytes(0);
  }
  [[nodiscard]] bool is_limited() const { return available_budget_ > Bytes(0); }
  // Held back from a budget: as at the latest step under it, else by the errors known.
  [[nodiscard]] Bytes held_back(Bytes budget) const;

  Margin margin;

 private:
  Bytes budget_{0};             // in force
  Bytes told_{-1};              // last seen in a context
  Bytes available_{0};          // budget less margin, as the cached plans know it
  Bytes available_budget_{-1};  // the budget that belongs to it
  Bytes deferred_growth_{0};    // since older plans were last dropped for it
};

}  // namespace pudica
