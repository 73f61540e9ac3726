// SharedBackward: which forwards wait for the same backward, as in contrastive training.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

namespace pudica::hooks {

// Torch 2.11 shares graph nodes by std::shared_ptr, 2.15 by its own intrusive pointer.
template <typename Pointer>
struct WeakOf;
template <typename T>
struct WeakOf<std::shared_ptr<T>> {
  using type = std::weak_ptr<T>;
};
template <typename T>
struct WeakOf<c10::intrusive_ptr<T>> {
  using type = c10::weak_intrusive_ptr<T>;
};
using NodePointer = std::remove_cvref_t<decltype(std::declval<const at::Tensor&>().grad_fn())>;
using WeakNode = WeakOf<NodePointer>::type;

// A forward waits while its graph lives and no gradient has come to its first layer that has one.
// One whose backward began in its last layer and is over without that, failed: nobody will try it
// again. Not thread-safe: one owner thread; the backward may run on others.
class SharedBackward {
 public:
  static constexpr std::size_t kMostExpected = 8;

  // A forward begins. Returns how many wait.
  std::int32_t begin_forward() {
    Forward latest = std::exchange(own_, {});
    if (latest.reached && !latest.failed()) forwards_.push_back(std::move(latest));
    // One backward ends all. Those before the first that it came to were left out, a loss that is
    // no number for one; those behind it were there with it, whether it came to them or not.
    const auto first = std::ranges::find_if(
        forwards_, [](const Forward& forward) { return forward.reached->by_any(); });
    if (first != forwards_.end()) {
      note(static_cast<std::size_t>(forwards_.end() - first));
      forwards_.clear();
    }
    std::erase_if(forwards_, [](const Forward& forward) { return forward.is_gone(); });
    return waiting();
  }

  // Outputs of the forward's layers in turn: the first through which a gradient may flow tell.
  void watch(const std::vector<at::Tensor>& outputs) {
    if (own_.reached) return;
    std::shared_ptr<Reached> reached;
    for (const at::Tensor& output : outputs) {
      if (!output.defined() || !output.requires_grad() || !output.grad_fn()) continue;
      if (!reached) reached = std::make_shared<Reached>();
      own_.nodes.emplace_back(NodePointer(output.grad_fn()));
      output.register_hook([reached](const at::Tensor&) {
        reached->note(torch::autograd::get_current_graph_task_id());
        return at::Tensor();
      });
    }
    own_.reached = std::move(reached);
  }

  // Outputs of what is the last layer of a forward, as far as is known.
  void watch_last(const std::vector<at::Tensor>& outputs) {
    if (own_.begun) return;
    const auto begun = std::make_shared<std::atomic<bool>>(false);
    for (const at::Tensor& output : outputs) {
      if (!output.defined() || !output.requires_grad()) continue;
      output.register_hook([begun](const at::Tensor&) {
        begun->store(true);
        return at::Tensor();
      });
      own_.begun = begun;
    }
  }

  // Of the forward under way, when no backward runs: there will be none, or it was cut short.
  [[nodiscard]] bool has_none() const {
    if (!own_.reached || own_.reached->by_any()) return false;
    return own_.is_gone() || own_.failed();
  }
  [[nodiscard]] bool own_waits() const {
    return own_.reached && !own_.reached->by_any() && !own_.is_gone();
  }
  [[nodiscard]] bool own_went_back() const { return own_.reached && own_.reached->by_any(); }
  // Several backwards went through the forward under way or one that waited for it: losses on one
  // graph, one after the other, or the gradient of a gradient.
  [[nodiscard]] bool is_repeated() const {
    return own_.is_repeated() || std::ranges::any_of(forwards_, &Forward::is_repeated);
  }
  [[nodiscard]] std::int32_t waiting() const { return static_cast<std::int32_t>(forwards_.size()); }
  // The latest backwards agree on what is expected.
  [[nodiscard]] bool is_sure() const { return is_sure_; }
  // That will follow the forward under way before the backward.
  [[nodiscard]] std::int32_t expected() const {
    const std::size_t own = forwards_.size() + 1;
    return usual_ > own ? static_cast<std::int32_t>(usual_ - own) : 0;
  }

 private:
  // Which backwards came to a forward's first layer, by their numbers: from 0 on, -1 where torch
  // tells none. Any thread.
  class Reached {
   public:
    void note(int backward) {
      const int before = latest_.exchange(backward);
      if (before != kNone && before != backward) again_.store(true);
    }
    [[nodiscard]] bool by_any() const { return latest_.load() != kNone; }
    [[nodiscard]] bool again() const { return again_.load(); }

   private:
    static constexpr int kNone = -2;

    std::atomic<int> latest_{kNone};
    std::atomic<bool> again_{false};
  };

  struct Forward {
    std::vector<WeakNode> nodes;
    std::shared_ptr<Reached> reached;          // null: it has no such layer yet
    std::shared_ptr<std::atomic<bool>> begun;  // null: its last layer was not seen

    [[nodiscard]] bool failed() const { return begun && begun->load() && !reached->by_any(); }
    [[nodiscard]] bool is_repeated() const { return reached && reached->again(); }
    [[nodiscard]] bool is_gone() const {
      return std::ranges::all_of(nodes, [](const WeakNode& node) { return node.expired(); });
    }
  };

  static constexpr std::ptrdiff_t kPattern = 3;  // backwards that tell where in a loop we are
  static constexpr std::size_t kRemembered = 24;

  // A backward of so many forwards ended. The next one's are those that came after the latest
  // backwards before; the most there were where that is not clear.
  void note(std::size_t forwards) {
    if (sizes_.size() == kRemembered) sizes_.erase(sizes_.begin());
    sizes_.push_back(std::min(forwards, kMostExpected));
    usual_ = *std::ranges::max_element(sizes_);
    is_sure_ = false;
    if (std::ssize(sizes_) < kPattern) return;
    const auto pattern = sizes_.end() - kPattern;
    std::vector<std::size_t> came;
    for (auto begin = sizes_.begin(); begin != pattern; ++begin) {
      if (std::equal(pattern, sizes_.end(), begin)) came.push_back(*(begin + kPattern));
    }
    is_sure_ = !came.empty() && std::ranges::count(came, came[0]) == std::ssize(came);
    if (is_sure_) usual_ = came[0];
  }

  Forward own_;                     // of the forward under way
  std::vector<Forward> forwards_;   // before it, that wait
  std::vector<std::size_t> sizes_;  // of the latest backwards in forwards, oldest first
  std::size_t usual_ = 1;
  bool is_sure_ = false;
};

}  // namespace pudica::hooks
