// RangeBudget: a budget as a fraction of what the longest batches leave to choose.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "native/controllers.h"
#include "pudica/bytes.h"
#include "pudica/shape_key.h"

namespace pudica::python {

// What the longest shapes seen need, by what was learned: the peak with every layer recomputed and
// the peak with every layer kept, each the largest of all shapes and kinds of call. Both are asked
// for anew when a longer shape comes and when the model has learned, and stay as they were where
// they come out within a thousandth. Not thread-safe: one owner thread.
class RangeBudget {
 public:
  struct Ends {
    Bytes floor_bytes{0};
    Bytes keep_all_bytes{0};
  };

  // A step of this kind of call and this shape begins. Of kinds below 0 nothing is learned.
  void saw(std::int64_t kind, const ShapeKey& shape);
  // What was learned has changed.
  void learned() { stale_ = true; }

  // As they were when they were asked for last; nullopt: not known yet.
  [[nodiscard]] const std::optional<Ends>& known() const { return ends_; }
  // As they are now.
  std::optional<Ends> ends(const Controllers& controllers);
  // The bytes of a fraction in [0, 1] of the way from the floor to keep-all, but at most so many;
  // so many where the ends are not known yet.
  Bytes bytes(double fraction, Bytes most, const Controllers& controllers);

 private:
  // Of which none covers another one, of one kind of call.
  static constexpr std::size_t kMostShapes = 16;

  std::map<std::int64_t, std::vector<ShapeKey>> longest_;
  std::optional<Ends> ends_;
  bool stale_ = true;
};

}  // namespace pudica::python
