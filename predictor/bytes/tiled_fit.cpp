#include "predictor/bytes/tiled_fit.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <set>

namespace pudica::predictor {
namespace {

constexpr std::size_t kMostForms = 32;

std::size_t distinct(std::span<const std::int64_t> sizes) {
  return std::set<std::int64_t>(sizes.begin(), sizes.end()).size();
}

// The sizes that stay at what is the most, by element of the monomial `of`.
struct Plateau {
  std::int64_t most_bytes = 0;    // by element
  std::vector<std::size_t> held;  // samples
};

std::optional<Plateau> plateau(const SizeSamples& samples, std::size_t of) {
  const std::int64_t slack = samples.granularity_bytes - 1;
  const auto lowest = [&](std::size_t i) {
    const std::int64_t elements = samples.row(i)[of];
    return (samples.sizes[i] - slack + elements - 1) / elements;
  };
  CoefficientRange range;
  for (std::size_t i = 0; i < samples.sizes.size(); ++i) {
    range.low = std::max(range.low, lowest(i));
  }
  range.high = kLargestValue;
  Plateau out;
  for (std::size_t i = 0; i < samples.sizes.size(); ++i) {
    const std::int64_t highest = samples.sizes[i] / samples.row(i)[of];
    if (highest < range.low) continue;
    range.high = std::min(range.high, highest);
    out.held.push_back(i);
  }
  const std::size_t below = samples.sizes.size() - out.held.size();
  if (out.held.size() < 2 || below < 1 || out.held.size() + below < 4) return std::nullopt;
  if (range.low > range.high) return std::nullopt;
  out.most_bytes = roundest(range);
  return out;
}

void add_capped(const SizeSamples& samples, std::span<const Tiling> tilings, std::size_t of,
                TiledForms& out) {
  const auto top = plateau(samples, of);
  if (!top) return;
  std::vector<std::int64_t> monomials;
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < samples.sizes.size(); ++i) {
    if (std::ranges::binary_search(top->held, i)) continue;
    sizes.push_back(samples.sizes[i]);
    monomials.insert(monomials.end(), samples.row(i).begin(), samples.row(i).end());
  }
  SizeSamples below = samples;
  below.monomials = monomials;
  below.sizes = sizes;
  std::vector<Form> found = match_one_term(below);
  if (found.empty() || sizes.size() == 1) {
    const std::vector<Form> tiled = match_tiled(below, tilings).forms;
    found.insert(found.end(), tiled.begin(), tiled.end());
  }
  for (Form& form : found) {
    form.most_bytes = top->most_bytes;
    form.most_of = static_cast<std::uint8_t>(of);
    if (form.denominator != 1 || !reproduces(form, samples)) continue;
    out.forms.push_back(form);
    out.evidence = distinct(sizes);
    out.at_rest = top->held.size();
  }
}

}  // namespace

std::uint64_t odd_part(const Form& form) {
  const auto coefficient = static_cast<std::uint64_t>(std::abs(form.coefficient));
  return coefficient >> static_cast<unsigned>(std::countr_zero(coefficient));
}

TiledForms match_tiled(const SizeSamples& raw, std::span<const Tiling> tilings) {
  const SizeSamples samples = with_true_granularity(raw);
  TiledForms found;
  std::vector<Form> extremes;
  for (const Tiling& tiling : tilings) {
    for (std::int64_t tile = kLeastTile; tile <= kMostTile; tile *= 2) {
      Form form;
      form.monomial = tiling.monomial;
      form.tiled = tiling.factor;
      form.tile = tile;
      form.granularity_bytes = samples.granularity_bytes;
      const auto range = coefficient_range(samples, form);
      if (!range) continue;
      add_within(form, *range, found.forms, extremes);
    }
  }
  std::ranges::stable_sort(found.forms, {}, odd_part);
  found.forms.insert(found.forms.end(), extremes.begin(), extremes.end());
  if (found.forms.size() > kMostForms) found.forms.resize(kMostForms);
  if (!found.forms.empty()) found.evidence = distinct(samples.sizes);
  return found;
}

TiledForms match_capped(const SizeSamples& raw, std::span<const Tiling> tilings,
                        std::size_t batch) {
  const SizeSamples samples = with_true_granularity(raw);
  TiledForms found;
  add_capped(samples, tilings, 0, found);
  if (batch != 0) add_capped(samples, tilings, batch, found);
  return found;
}

}  // namespace pudica::predictor
