// The examples of a run, their batches in order, and the tokens of a batch. No torch in here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pudica/result.h"
#include "pudica/shape_key.h"
#include "train/options.h"
#include "train/random.h"

namespace pudica::train {

// One example: its lengths in tokens, at least 1 each, and for text where its bytes begin.
struct Example {
  std::array<std::int64_t, 2> lengths = {0, 0};  // source, target (0 with one length)
  std::size_t text_offset = 0;
};

struct Dataset {
  DataKind kind = DataKind::kText;
  int dimensions = 1;  // lengths of an example: 1 (source) or 2 (source, target)
  std::string text;    // of kText: the whole file
  std::vector<Example> examples;

  // The longest source (0) or target (1).
  [[nodiscard]] std::int64_t longest(int dimension) const;
};

// Text: a line that is not empty is an example, its bytes are tokens. Lengths: a CSV of integers
// with a header. Examples are cut at `max_length` (0: uncut). Errors: kNotFound (cannot read),
// kInvalidArgument naming line and column.
Result<Dataset> load_data(const DataOptions& options, std::int64_t max_length);

// The same from the file's content.
Result<Dataset> parse_text(std::string content, std::int64_t max_length);
Result<Dataset> parse_lengths(std::string_view content, const std::vector<std::string>& columns,
                              std::int64_t max_length);

// One batch, padded to its longest example.
struct Batch {
  ShapeKey shape;                      // batch, source[, target]
  std::vector<std::uint32_t> members;  // indices into Dataset::examples
};

struct BatchOptions {
  std::int64_t batch = 1;
  std::int64_t steps = 1;
  std::uint64_t seed = 1;
};

// The first `steps` batches of an endless sequence of epochs, each shuffled anew; an epoch's last
// batch may be short. The same on every platform. Requires: examples, batch >= 1, steps >= 0.
std::vector<Batch> make_batches(const Dataset& data, const BatchOptions& options);

// A batch as token numbers, row-major [batch, length], with 15 % of the predicted side's tokens
// masked. The number of predictions depends on the shape alone, so that memory does too: rows past
// the masked tokens carry kIgnored.
struct TokenBatch {
  static constexpr std::int64_t kIgnored = -100;

  std::int64_t batch = 0;
  std::array<std::int64_t, 2> lengths = {0, 0};    // padded; target 0 with one length
  std::array<std::vector<std::int64_t>, 2> ids;    // padding is 0
  std::array<std::vector<std::int64_t>, 2> valid;  // tokens of each example
  std::vector<std::int64_t> positions;             // into the predicted side, flat
  std::vector<std::int64_t> labels;                // the masked tokens, or kIgnored
};

// Of text: its bytes. Of lengths: random tokens. The last of `vocab` is the mask. Depends on
// the arguments alone. Requires: vocab >= 256 for text, >= 2 else.
TokenBatch make_tokens(const Dataset& data, const Batch& batch, std::int64_t vocab, Random random);

}  // namespace pudica::train
