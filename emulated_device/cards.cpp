// Memory is what torch reports as total_memory on the card; rates are those of the data sheets.
#include "emulated_device/cards.h"

namespace pudica::emulated {
namespace {

constexpr std::size_t mib(std::size_t count) { return count << 20U; }

constexpr Card kCards[] = {
    {"T4", "Tesla T4", 75, 40, mib(15095), mib(104), 320, 65, 8.1, 12, 4, 256},
    {"V100", "Tesla V100-SXM2-16GB", 70, 80, mib(16160), mib(308), 900, 125, 15.7, 12, 6, 4096},
    {"V100-32", "Tesla V100-SXM2-32GB", 70, 80, mib(32510), mib(308), 900, 125, 15.7, 12, 6, 4096},
    {"RTX4090", "NVIDIA GeForce RTX 4090", 89, 128, mib(24217), mib(400), 1008, 165.2, 82.6, 25, 72,
     384},
    {"A100-40", "NVIDIA A100-SXM4-40GB", 80, 108, mib(40337), mib(424), 1555, 312, 19.5, 25, 40,
     5120},
    {"A100-80", "NVIDIA A100-SXM4-80GB", 80, 108, mib(81153), mib(424), 2039, 312, 19.5, 25, 40,
     5120},
    {"H100", "NVIDIA H100 80GB HBM3", 90, 132, mib(81079), mib(520), 3352, 989.4, 66.9, 50, 50,
     5120},
    {"H200", "NVIDIA H200", 90, 132, mib(143167), mib(528), 4800, 989.4, 66.9, 50, 50, 6144},
};

}  // namespace

std::span<const Card> cards() { return kCards; }

const Card* find_card(const std::string& name) {
  for (const Card& card : kCards) {
    if (name == card.name) return &card;
  }
  return nullptr;
}

std::string card_names() {
  std::string names;
  for (const Card& card : kCards) {
    names += (names.empty() ? "" : ", ") + std::string(card.name);
  }
  return names;
}

Limits limits_of(int capability) {
  if (capability >= 90) return {233472, 232448, 2048, 32};
  if (capability >= 89) return {102400, 101376, 1536, 24};
  if (capability >= 80) return {167936, 166912, 2048, 32};
  if (capability >= 75) return {65536, 65536, 1024, 16};
  return {98304, 98304, 2048, 32};
}

}  // namespace pudica::emulated
