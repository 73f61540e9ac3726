#include "predictor/bytes/monomials.h"

#include <algorithm>

namespace pudica::predictor {
namespace {

std::int64_t saturated_product(std::int64_t left, std::int64_t right) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(left, right, &product)) return kLargestValue;
  return std::min(product, kLargestValue);
}

}  // namespace

MonomialBasis::MonomialBasis(std::size_t dimensions) : dimensions_(dimensions) {
  factors_.push_back({kOne, kOne, kOne});
  if (dimensions == 0) return;
  if (dimensions == 1) {
    factors_.push_back({0, kOne, kOne});
    factors_.push_back({0, 0, kOne});
    linear_count_ = 1;
    time_count_ = 3;
    add_tilings({0, kOne, kOne});
    lengths_ = {1};
    return;
  }
  linear_count_ = dimensions - 1;
  add_products(0);
  time_count_ = factors_.size();
  factors_.push_back({0, kOne, kOne});
  add_products(kOne);
  for (std::uint8_t i = 1; i < dimensions; ++i) {
    lengths_.push_back(static_cast<std::uint8_t>(find({kOne, i, kOne})));
    add_tilings({kOne, i, kOne});
    add_tilings({0, i, kOne});
  }
}

void MonomialBasis::add_tilings(const Factors& factor) {
  for (auto product = factors_.begin(); product != factors_.end(); ++product) {
    Factors rest = *product;
    const bool divides = std::ranges::all_of(factor, [&rest](std::uint8_t dimension) {
      if (dimension == kOne) return true;
      const auto one = std::ranges::find(rest, dimension);
      if (one == rest.end()) return false;
      *one = kOne;
      return true;
    });
    if (!divides) continue;
    tilings_.push_back({static_cast<std::uint8_t>(product - factors_.begin()),
                        static_cast<std::uint8_t>(find(factor))});
  }
}

std::size_t MonomialBasis::batch() const {
  if (dimensions_ < 2) return 0;
  return find({0, kOne, kOne});
}

std::size_t MonomialBasis::find(const Factors& factors) const {
  const auto sorted = [](Factors of) {
    std::ranges::sort(of);
    return of;
  };
  const auto found = std::ranges::find(factors_, sorted(factors), sorted);
  return static_cast<std::size_t>(found - factors_.begin());
}

std::uint8_t MonomialBasis::power(std::size_t monomial, std::uint8_t length) const {
  const auto dimension = std::ranges::min(factors_[length]);
  return static_cast<std::uint8_t>(std::ranges::count(factors_[monomial], dimension));
}

std::size_t MonomialBasis::without(std::size_t monomial, std::uint8_t length) const {
  Factors rest = factors_[monomial];
  *std::ranges::find(rest, std::ranges::min(factors_[length])) = kOne;
  return find(rest);
}

void MonomialBasis::add_products(std::uint8_t leading) {
  const auto count = static_cast<std::uint8_t>(dimensions_);
  for (std::uint8_t i = 1; i < count; ++i) factors_.push_back({leading, i, kOne});
  for (std::uint8_t i = 1; i < count; ++i) {
    for (std::uint8_t j = i + 1; j < count; ++j) factors_.push_back({leading, i, j});
  }
  for (std::uint8_t i = 1; i < count; ++i) factors_.push_back({leading, i, i});
}

const MonomialBasis& MonomialBasis::of(std::size_t dimensions) {
  static const auto all = [] {
    std::vector<MonomialBasis> bases;
    for (std::size_t n = 0; n <= ShapeKey::kMaxDimensions; ++n) bases.emplace_back(n);
    return bases;
  }();
  return all.at(dimensions);
}

MonomialBasis::Sizes MonomialBasis::sizes_of(const ShapeKey& shape) const {
  Sizes sizes{};
  sizes.fill(1);
  for (std::size_t i = 0; i < std::min(shape.size(), dimensions_); ++i) {
    sizes[i] = std::clamp<std::int64_t>(shape[i], 1, kLargestValue);
  }
  return sizes;
}

std::int64_t MonomialBasis::product(std::size_t monomial, const Sizes& sizes) const {
  const Factors& f = factors_[monomial];
  return saturated_product(saturated_product(sizes[f[0]], sizes[f[1]]), sizes[f[2]]);
}

void MonomialBasis::evaluate(const ShapeKey& shape, std::span<std::int64_t> values) const {
  const Sizes sizes = sizes_of(shape);
  for (std::size_t i = 0; i < factors_.size(); ++i) values[i] = product(i, sizes);
}

double MonomialBasis::volume(const ShapeKey& shape) const {
  if (linear_count_ == 0) return 1;
  const Sizes sizes = sizes_of(shape);
  double sum = 0;
  for (std::size_t i = 1; i <= linear_count_; ++i) sum += static_cast<double>(product(i, sizes));
  return sum;
}

std::string MonomialBasis::name(std::size_t monomial, const DimensionNames& names) const {
  std::string text;
  const Factors& factors = factors_.at(monomial);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] == kOne) continue;
    const bool squared = i + 1 < factors.size() && factors[i + 1] == factors[i];
    if (!text.empty()) text += '*';
    text += names.at(factors[i]);
    if (squared) {
      text += "^2";
      ++i;
    }
  }
  return text.empty() ? "1" : text;
}

}  // namespace pudica::predictor
