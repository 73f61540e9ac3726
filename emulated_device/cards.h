// The cards that can be emulated: what a program asks of a device's properties, what bounds its
// memory, and the published rates that the virtual clock reckons with.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace pudica::emulated {

struct Card {
  const char* name;   // of PUDICA_EMULATED_CARD
  const char* title;  // as the device calls itself
  int capability;     // 80 is 8.0
  int processors;
  std::size_t memory_bytes;   // as cudaMemGetInfo's total
  std::size_t context_bytes;  // about what a process takes before its first allocation
  double memory_gb_s;         // published rates
  double half_tflops;         // dense products of 16 bit, 32 bit sums
  double single_tflops;       // of 32 bit
  double link_gb_s;           // to the host, one direction
  int l2_mib;
  int bus_bits;
};

// What follows from the compute capability (CUDA programming guide, technical specifications).
struct Limits {
  int shared_bytes;        // a multiprocessor
  int shared_optin_bytes;  // a block that asks for it
  int threads;             // a multiprocessor
  int blocks;              // a multiprocessor
};

// The same on all of them.
constexpr int kBlockThreads = 1024;
constexpr int kGridSide = 65535;  // of a grid's second and third side
constexpr int kBlockSharedBytes = 49152;
constexpr int kReservedSharedBytes = 1024;

std::span<const Card> cards();
// nullptr: there is none of that name.
const Card* find_card(const std::string& name);
// For messages: all names.
std::string card_names();
Limits limits_of(int capability);

}  // namespace pudica::emulated
