#include "predictor/bytes/counted_fit.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "predictor/bytes/tiled_fit.h"

namespace pudica::predictor {
namespace {

constexpr std::size_t kMostForms = 32;  // and as many extremes
constexpr std::array<std::int8_t, 3> kMore{0, 1, -1};

// As a sum of two is read: with a length counted, the samples are those of another shape.
SizeSamples seen_as(SizeSamples samples, std::span<const std::int64_t> monomials) {
  samples.monomials = monomials;
  return samples;
}

}  // namespace

CountedShapes::CountedShapes(const SizeSamples& samples, const MonomialBasis& basis)
    : basis_(basis) {
  for (const std::uint8_t length : basis.lengths()) {
    for (std::int64_t tile = 1; tile <= kMostTile; tile = std::max(2 * tile, kLeastTile)) {
      for (const std::int8_t more : kMore) {
        if (tile == 1 && more == 0) continue;
        View view;
        view.counting.tile = tile;
        view.counting.count = {.dimension = length, .more = more};
        view.monomials.reserve(samples.monomials.size());
        for (std::size_t i = 0; i < samples.sizes.size(); ++i) {
          for (std::size_t m = 0; m < samples.columns; ++m) {
            Form form = view.counting;
            form.monomial = static_cast<std::uint8_t>(m);
            form.count.first_power = basis.power(m, length);
            view.monomials.push_back(form.first_term(samples.row(i)));
          }
        }
        const bool is_empty = std::ranges::find(view.monomials, 0) != view.monomials.end();
        if (!is_empty) views_.push_back(std::move(view));
      }
    }
  }
}

Form CountedShapes::as_counted(const View& view, Form form) const {
  form.tile = view.counting.tile;
  form.count = view.counting.count;
  form.count.first_power = basis_.power(form.monomial, form.count.dimension);
  if (form.second != Form::kNoTerm) {
    form.count.second_power = basis_.power(form.second, form.count.dimension);
  }
  return form;
}

void CountedShapes::match_one_term(const SizeSamples& samples, const View& view,
                                   std::vector<Form>& points, std::vector<Form>& extremes) const {
  for (std::size_t m = 0; m < samples.columns; ++m) {
    if (basis_.power(m, view.counting.count.dimension) == 0) continue;
    Form form;
    form.monomial = static_cast<std::uint8_t>(m);
    form.granularity_bytes = samples.granularity_bytes;
    const auto range = coefficient_range(samples, form);
    if (range) add_within(as_counted(view, form), *range, points, extremes);
  }
}

void CountedShapes::match_two_terms(const SizeSamples& samples, const View& view,
                                    std::vector<Form>& points) const {
  const std::uint8_t length = view.counting.count.dimension;
  for (std::size_t m = 0; m < samples.columns; ++m) {
    if (basis_.power(m, length) == 0) continue;
    const auto form = match_pair(samples, basis_.without(m, length), m);
    if (form) points.push_back(as_counted(view, *form));
  }
}

std::vector<Form> CountedShapes::match(const SizeSamples& raw) const {
  const SizeSamples samples = with_true_granularity(raw);
  const std::size_t sizes = std::set(samples.sizes.begin(), samples.sizes.end()).size();
  std::vector<Form> points;
  std::vector<Form> extremes;
  if (sizes < 3) return points;
  for (const View& view : views_) {
    match_one_term(seen_as(samples, view.monomials), view, points, extremes);
  }
  if (points.empty() && sizes >= 4) {
    for (const View& view : views_) {
      if (view.counting.count.more != 0) continue;
      match_two_terms(seen_as(samples, view.monomials), view, points);
    }
  }
  std::ranges::stable_sort(points, {}, odd_part);
  if (points.size() > kMostForms) points.resize(kMostForms);
  if (extremes.size() > kMostForms) extremes.resize(kMostForms);
  points.insert(points.end(), extremes.begin(), extremes.end());
  return points;
}

}  // namespace pudica::predictor
