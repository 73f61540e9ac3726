#include "torch/class_menu.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <limits>

#include <ATen/ATen.h>

#include "base/log.h"
#include "pudica/bytes.h"

namespace pudica::hooks {
namespace {

constexpr std::size_t kMostExhaustive = 10;  // candidates: all their subsets are tried
constexpr std::size_t kMostCandidates = 48;  // the largest ones
constexpr double kLeastShare = 0.01;         // of the layer's saved bytes
constexpr std::int64_t kLeastPackedBytes = 4096;

struct Candidate {
  std::uint32_t slot = 0;
  std::size_t storage = 0;
  std::int64_t bytes = 0;
};

struct Point {
  std::int64_t freed_bytes = 0;
  double seconds = 0;
  std::vector<std::size_t> chosen;  // candidates by index
};

bool same_bytes(const c10::Storage& left, const c10::Storage& right) {
  if (left.nbytes() != right.nbytes()) return false;
  if (left.nbytes() == 0) return true;
  if (left.device_type() == c10::DeviceType::CPU) {
    return std::memcmp(left.data(), right.data(), left.nbytes()) == 0;
  }
  const auto view = [](const c10::Storage& storage) {
    const auto options = at::TensorOptions().dtype(at::kByte).device(storage.device());
    return at::empty({0}, options).set_(storage, 0, {static_cast<std::int64_t>(storage.nbytes())});
  };
  return at::equal(view(left), view(right));
}

class MenuFinder {
 public:
  explicit MenuFinder(const Collection& call) : call_(call), tape_(call.tape) {
    for (std::size_t slot = 0; slot < call.slot_storage.size(); ++slot) {
      const std::int32_t storage = call.slot_storage[slot];
      if (storage == Tape::kNone || storage_slot(storage) != nullptr) continue;
      first_slot_.emplace_back(storage, static_cast<std::uint32_t>(slot));
      if (!tape_.stored()[static_cast<std::size_t>(storage)].external) {
        saved_bytes_ += tape_.stored()[static_cast<std::size_t>(storage)].bytes;
      }
    }
  }

  std::shared_ptr<const ClassMenu> find(std::size_t most_steps) {
    const StorageSet recoverable = tape_.recoverable();
    choose_candidates(recoverable);
    choose_packed(recoverable);
    std::vector<Point> hull = lower_hull(points());
    if (!packed_.empty()) hull.insert(hull.begin(), Point{});
    thin(hull, most_steps);
    auto menu = std::make_shared<ClassMenu>();
    menu->signature = tape_.signature();
    for (const Point& point : hull) menu->steps.push_back(step_of(point));
    add_order(*menu);
    if (menu->steps.empty()) return nullptr;
    menu->id = id_of(*menu);
    return menu;
  }

 private:
  [[nodiscard]] const std::uint32_t* storage_slot(std::int32_t storage) const {
    for (const auto& [known, slot] : first_slot_) {
      if (known == storage) return &slot;
    }
    return nullptr;
  }

  // Large saved storages that the operators give back to the bit.
  void choose_candidates(const StorageSet& recoverable) {
    for (const auto& [number, slot] : first_slot_) {
      const auto storage = static_cast<std::size_t>(number);
      const Tape::Stored& stored = tape_.stored()[storage];
      const bool large =
          static_cast<double>(stored.bytes) >= kLeastShare * static_cast<double>(saved_bytes_);
      if (recoverable[storage] && !stored.escapes && large) {
        candidates_.push_back({slot, storage, stored.bytes});
      }
    }
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bytes > b.bytes; });
    if (candidates_.size() > kMostCandidates) candidates_.resize(kMostCandidates);
    std::erase_if(candidates_, [this](const Candidate& one) { return !reproduces(one.storage); });
  }

  // Recovers the storage while every other saved one is there, and compares.
  bool reproduces(std::size_t storage) {
    auto& all = tape_.stored();
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (all[k].external) {
        all[k].live_version = all[k].version;
        continue;
      }
      const bool there = k != storage && all[k].slots > 0 && call_.bytes_of[k];
      all[k].live = there ? call_.bytes_of[k] : c10::Storage();
      all[k].live_version = there ? all[k].version : Tape::kNone;
    }
    bool same = false;
    try {
      same = same_bytes(tape_.recover(static_cast<std::int32_t>(storage)), call_.bytes_of[storage]);
    } catch (const std::exception& error) {
      log_info(std::string("a saved tensor is kept: it cannot be recovered: ") + error.what());
    }
    for (auto& stored : all) {
      if (stored.external) continue;
      stored.live = c10::Storage();
      stored.live_version = Tape::kNone;
    }
    return same;
  }

  // What cannot be recovered and has two values: dropout's noise.
  void choose_packed(const StorageSet& recoverable) {
    for (const auto& [number, slot] : first_slot_) {
      const auto storage = static_cast<std::size_t>(number);
      const Tape::Stored& stored = tape_.stored()[storage];
      if (recoverable[storage] || stored.external || stored.escapes || stored.saved_early) continue;
      if (stored.bytes < kLeastPackedBytes || !call_.bytes_of[storage]) continue;
      const auto begin = std::chrono::steady_clock::now();
      const auto bits = encode_bits(call_.bytes_of[storage], stored.item_bytes);
      if (!bits) continue;
      decode_bits(*bits);
      packed_seconds_ +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      packed_.push_back(slot);
      packed_bytes_ += stored.bytes - static_cast<std::int64_t>(bits->packed.nbytes());
    }
  }

  Point evaluate(std::vector<std::size_t> chosen, bool& feasible) const {
    StorageSet drop(tape_.stored().size(), false);
    Point point;
    for (const std::size_t i : chosen) {
      drop[candidates_[i].storage] = true;
      point.freed_bytes += candidates_[i].bytes;
    }
    const Closure closure = tape_.closure(drop);
    feasible = closure.feasible;
    point.seconds = closure.seconds;
    point.chosen = std::move(chosen);
    return point;
  }

  std::vector<Point> points() const {
    std::vector<Point> out;
    bool feasible = false;
    if (candidates_.size() <= kMostExhaustive) {
      for (std::uint32_t set = 1; set < (1U << candidates_.size()); ++set) {
        std::vector<std::size_t> chosen;
        for (std::size_t i = 0; i < candidates_.size(); ++i) {
          if ((set >> i & 1U) != 0) chosen.push_back(i);
        }
        Point point = evaluate(std::move(chosen), feasible);
        if (feasible) out.push_back(std::move(point));
      }
      return out;
    }
    // Greedy: the next candidate is the one with the least further time per byte.
    Point now;
    std::vector<bool> taken(candidates_.size(), false);
    for (std::size_t round = 0; round < candidates_.size(); ++round) {
      double best_price = std::numeric_limits<double>::infinity();
      Point best;
      std::size_t best_index = 0;
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        if (taken[i]) continue;
        std::vector<std::size_t> chosen = now.chosen;
        chosen.push_back(i);
        Point point = evaluate(std::move(chosen), feasible);
        const double price =
            std::max(0.0, point.seconds - now.seconds) / static_cast<double>(candidates_[i].bytes);
        if (!feasible || price >= best_price) continue;
        best_price = price;
        best = std::move(point);
        best_index = i;
      }
      if (best.chosen.empty()) break;
      taken[best_index] = true;
      now = std::move(best);
      out.push_back(now);
    }
    return out;
  }

  // From (0, 0): ever more bytes at a rising price.
  static std::vector<Point> lower_hull(std::vector<Point> points) {
    std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
      return a.freed_bytes != b.freed_bytes ? a.freed_bytes < b.freed_bytes : a.seconds < b.seconds;
    });
    const auto area = [](const Point& a, const Point& b, const Point& c) {
      return (b.seconds - a.seconds) * static_cast<double>(c.freed_bytes - a.freed_bytes) -
             (c.seconds - a.seconds) * static_cast<double>(b.freed_bytes - a.freed_bytes);
    };
    std::vector<Point> hull{Point{}};
    for (Point& point : points) {
      if (point.freed_bytes == hull.back().freed_bytes) continue;  // dearer for the same
      while (hull.size() > 1 && area(hull[hull.size() - 2], hull.back(), point) >= 0) {
        hull.pop_back();
      }
      hull.push_back(std::move(point));
    }
    hull.erase(hull.begin());
    return hull;
  }

  // Takes away inner points, each time the one that costs the hull the least area.
  static void thin(std::vector<Point>& hull, std::size_t most) {
    while (hull.size() > most && hull.size() > 2) {
      double least = std::numeric_limits<double>::infinity();
      std::size_t drop = 1;
      for (std::size_t i = 1; i + 1 < hull.size(); ++i) {
        const Point& a = hull[i - 1];
        const Point& c = hull[i + 1];
        const double span = static_cast<double>(c.freed_bytes - a.freed_bytes);
        const double share = static_cast<double>(hull[i].freed_bytes - a.freed_bytes) / span;
        const double gain = (a.seconds + share * (c.seconds - a.seconds) - hull[i].seconds) * span;
        if (gain < least) {
          least = gain;
          drop = i;
        }
      }
      hull.erase(hull.begin() + static_cast<std::ptrdiff_t>(drop));
    }
  }

  MenuStep step_of(const Point& point) const {
    MenuStep step;
    StorageSet drop(tape_.stored().size(), false);
    for (const std::size_t i : point.chosen) {
      step.dropped.push_back(candidates_[i].slot);
      drop[candidates_[i].storage] = true;
    }
    std::sort(step.dropped.begin(), step.dropped.end());
    step.packed = packed_;
    step.freed_bytes = point.freed_bytes + packed_bytes_;
    step.seconds = point.seconds + packed_seconds_;
    const Closure closure = tape_.closure(drop);
    for (std::size_t e = 0; e < closure.entries.size(); ++e) {
      if (closure.entries[e]) step.operators.push_back(tape_.entries()[e].facts->name);
    }
    return step;
  }

  // For revocation: candidates in the order in which the greedy takes them.
  void add_order(ClassMenu& menu) const {
    std::vector<std::size_t> chosen;
    std::vector<bool> taken(candidates_.size(), false);
    double seconds = 0;
    for (std::size_t round = 0; round < candidates_.size(); ++round) {
      double best_price = std::numeric_limits<double>::infinity();
      double best_seconds = 0;
      std::size_t best = candidates_.size();
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        if (taken[i]) continue;
        std::vector<std::size_t> with = chosen;
        with.push_back(i);
        bool feasible = false;
        const Point point = evaluate(std::move(with), feasible);
        const double price =
            std::max(0.0, point.seconds - seconds) / static_cast<double>(candidates_[i].bytes);
        if (!feasible || price >= best_price) continue;
        best_price = price;
        best_seconds = point.seconds;
        best = i;
      }
      if (best == candidates_.size()) break;
      taken[best] = true;
      chosen.push_back(best);
      seconds = best_seconds;
      menu.order.push_back(candidates_[best].slot);
      menu.order_price_us.push_back(best_price * 1e6);
    }
  }

  static std::uint64_t id_of(const ClassMenu& menu) {
    std::uint64_t id = menu.signature;
    const auto mix = [&id](std::uint64_t value) { id = (id ^ value) * 0x100000001b3ULL; };
    for (const MenuStep& step : menu.steps) {
      mix(step.dropped.size());
      for (const std::uint32_t slot : step.dropped) mix(slot);
      mix(step.packed.size());
      for (const std::uint32_t slot : step.packed) mix(slot);
    }
    return id;
  }

  const Collection& call_;
  Tape& tape_;
  std::vector<std::pair<std::int32_t, std::uint32_t>> first_slot_;
  std::int64_t saved_bytes_ = 0;
  std::vector<Candidate> candidates_;
  std::vector<std::uint32_t> packed_;
  std::int64_t packed_bytes_ = 0;
  double packed_seconds_ = 0;
};

}  // namespace

std::string to_string(const MenuStep& step) {
  std::string text = "frees " + format_bytes(Bytes(step.freed_bytes)) +
                     " at the shape first seen: drops " + std::to_string(step.dropped.size()) +
                     " saved tensors";
  if (!step.packed.empty()) {
    text += ", holds " + std::to_string(step.packed.size()) + " masks as bits";
  }
  text += "; runs again:";
  std::string last;
  std::size_t repeats = 0;
  const auto flush = [&] {
    if (last.empty()) return;
    text += ' ' + last + (repeats > 1 ? " x" + std::to_string(repeats) : "") + ',';
  };
  std::vector<std::string> sorted = step.operators;
  std::sort(sorted.begin(), sorted.end());
  for (const std::string& name : sorted) {
    if (name != last) flush();
    repeats = name == last ? repeats + 1 : 1;
    last = name;
  }
  flush();
  if (step.operators.empty()) return text + " nothing";
  text.pop_back();
  return text;
}

std::shared_ptr<const ClassMenu> find_menu(const Collection& call, std::size_t most_steps) {
  if (call.tape.incomplete()) return nullptr;
  return MenuFinder(call).find(most_steps);
}

bool ClassTapes::wants_collection() const {
  const std::lock_guard lock(mutex_);
  return collections_ < kCollections && menu_ == nullptr;
}

void ClassTapes::collected(const Collection& call) {
  {
    const std::lock_guard lock(mutex_);
    if (++collections_ < kCollections) return;
  }
  auto menu = find_menu(call, kMostSteps);
  const std::lock_guard lock(mutex_);
  menu_ = std::move(menu);
}

std::shared_ptr<const ClassMenu> ClassTapes::menu() const {
  const std::lock_guard lock(mutex_);
  return menu_;
}

void ClassTapes::met_stranger() {
  const std::lock_guard lock(mutex_);
  if (++strangers_ >= kMostStrangers) menu_ = nullptr;
}

}  // namespace pudica::hooks
