// What running an operator again costs, told from its kind and sizes: a stand-in for its time that
// is the same in every process.
#pragma once

#include <cstdint>
#include <vector>

#include "torch/tape.h"

namespace pudica::hooks {

// Tenths of a byte moved. Proportional to what the operator writes, with a factor that depends on
// the operator and on parameters' sizes alone: for layers whose tensors grow alike with the shape,
// ratios of work do not depend on the shape.
std::int64_t work_of(const Tape::Entry& entry, const std::vector<Tape::Stored>& stored);

// Of holding a tensor as bits and making it again: it is read once and written once.
std::int64_t work_of_packing(std::int64_t bytes);

// By storage: made from parameters alone (a weight cast to another type).
StorageSet made_of_parameters(const Tape& tape);

}  // namespace pudica::hooks
