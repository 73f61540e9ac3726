#include "predictor/bytes/split_fit.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace pudica::predictor {
namespace {

constexpr std::size_t kMostPieces = 3;
constexpr std::size_t kLeastShapes = 3;
constexpr std::size_t kMostToBegin = 5;  // shapes: enough for each form

std::vector<Form> match_piece(const SizeSamples& samples) {
  std::vector<Form> forms = match_one_term(samples);
  if (forms.empty() && samples.sizes.size() > kLeastShapes) forms = match_two_terms(samples);
  return forms;
}

}  // namespace

// The samples from the shortest to the longest.
class SplitForms::Sorted {
 public:
  Sorted(const SizeSamples& samples, std::uint8_t length) : samples_(samples), length_(length) {
    std::vector<std::size_t> order(samples.sizes.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return samples.row(i)[length]; });
    for (const std::size_t i : order) {
      sizes_.push_back(samples.sizes[i]);
      monomials_.insert(monomials_.end(), samples.row(i).begin(), samples.row(i).end());
    }
    samples_.sizes = sizes_;
    samples_.monomials = monomials_;
  }
  Sorted(const Sorted&) = delete;
  Sorted& operator=(const Sorted&) = delete;
  Sorted(Sorted&&) = delete;
  Sorted& operator=(Sorted&&) = delete;
  ~Sorted() = default;

  [[nodiscard]] std::size_t size() const { return sizes_.size(); }
  // Up to where one form gives every sample from `begin` on, shapes of one length together; and
  // those that do. `begin`: there is none.
  [[nodiscard]] std::size_t end_of_piece(std::size_t begin, std::vector<Form>& forms) const {
    std::size_t good = begin;
    std::size_t end = begin + kLeastShapes - 1;
    while (end < size() && (good > begin || end < begin + kMostToBegin)) {
      end = end_of_length(end + 1);
      const SizeSamples samples = part(begin, end);
      std::vector<Form> still = forms;
      std::erase_if(still, [&](const Form& form) { return !reproduces(form, samples); });
      if (still.empty()) still = match_piece(samples);
      if (still.empty() && good > begin) break;
      if (still.empty()) continue;
      forms = std::move(still);
      good = end;
    }
    return good;
  }
  [[nodiscard]] std::int64_t length(std::size_t index) const {
    return samples_.row(index)[length_];
  }

 private:
  [[nodiscard]] std::size_t end_of_length(std::size_t end) const {
    while (end < size() && length(end) == length(end - 1)) ++end;
    return end;
  }
  [[nodiscard]] SizeSamples part(std::size_t begin, std::size_t end) const {
    SizeSamples part = samples_;
    part.sizes = samples_.sizes.subspan(begin, end - begin);
    part.monomials =
        samples_.monomials.subspan(begin * samples_.columns, (end - begin) * samples_.columns);
    return part;
  }

  SizeSamples samples_;
  std::uint8_t length_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> monomials_;
};

std::optional<SplitForms> SplitForms::match(const SizeSamples& raw, const MonomialBasis& basis) {
  const SizeSamples samples = with_true_granularity(raw);
  if (samples.sizes.size() < 2 * kLeastShapes) return std::nullopt;
  for (const std::uint8_t length : basis.lengths()) {
    const Sorted sorted(samples, length);
    SplitForms split;
    split.length_ = length;
    std::size_t begin = 0;
    while (begin < sorted.size() && split.pieces_.size() < kMostPieces) {
      Piece piece;
      const std::size_t end = sorted.end_of_piece(begin, piece.forms);
      if (end == begin) break;
      piece.shortest = sorted.length(begin);
      piece.longest = sorted.length(end - 1);
      split.pieces_.push_back(std::move(piece));
      begin = end;
    }
    if (begin == sorted.size()) return split;
  }
  return std::nullopt;
}

SplitForms::Range SplitForms::range(std::span<const std::int64_t> monomials) const {
  const std::int64_t length = monomials[length_];
  Range range{.point = 0, .low = kLargestValue, .high = 0};
  range.is_beyond = length < pieces_.front().shortest || length > pieces_.back().longest;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const bool is_from = i == 0 || length > pieces_[i - 1].longest;
    const bool is_until = i + 1 == pieces_.size() || length < pieces_[i + 1].shortest;
    if (is_from && is_until) pieces_[i].add_to(range, monomials);
  }
  return range;
}

void SplitForms::Piece::add_to(Range& range, std::span<const std::int64_t> monomials) const {
  range.point = std::max(range.point, forms.front().evaluate(monomials));
  for (const Form& form : forms) {
    const std::int64_t bytes = form.evaluate(monomials);
    range.low = std::min(range.low, bytes);
    range.high = std::max(range.high, bytes);
  }
}

}  // namespace pudica::predictor
