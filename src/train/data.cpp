#include "train/data.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace pudica::train {
namespace {

constexpr double kMaskedShare = 0.15;

std::int64_t cut(std::int64_t length, std::int64_t max_length) {
  return max_length > 0 ? std::min(length, max_length) : length;
}

// Takes the next line, without its end, off `rest`; nothing at the end of the text.
std::optional<std::string_view> take_line(std::string_view& rest) {
  if (rest.empty()) return std::nullopt;
  const auto end = rest.find('\n');
  auto line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::vector<std::string_view> split_fields(std::string_view line) {
  std::vector<std::string_view> fields;
  for (;;) {
    const auto end = line.find(',');
    auto field = line.substr(0, end);
    while (field.starts_with(' ')) field.remove_prefix(1);
    while (field.ends_with(' ')) field.remove_suffix(1);
    fields.push_back(field);
    if (end == std::string_view::npos) return fields;
    line.remove_prefix(end + 1);
  }
}

struct Column {
  std::string name;
  std::size_t index = 0;
};

bool contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<std::vector<Column>> find_columns(const std::vector<std::string_view>& header,
                                         std::vector<std::string> names) {
  if (names.empty()) {
    if (contains(header, "len")) {
      names = {"len"};
    } else if (contains(header, "src_len") && contains(header, "tgt_len")) {
      names = {"src_len", "tgt_len"};
    } else {
      return invalid_argument(fmt::format(
          "line 1: columns '{}' seen, expected `len`, or `src_len` and `tgt_len`, or name them",
          fmt::join(header, ",")));
    }
  }
  std::vector<Column> columns;
  for (auto& name : names) {
    const auto place = std::find(header.begin(), header.end(), name);
    if (place == header.end()) {
      return invalid_argument(fmt::format("line 1: no column '{}', expected one of '{}'", name,
                                          fmt::join(header, ",")));
    }
    columns.push_back({std::move(name), static_cast<std::size_t>(place - header.begin())});
  }
  return columns;
}

Result<std::int64_t> read_length(const std::vector<std::string_view>& fields, const Column& column,
                                 std::int64_t line) {
  constexpr std::int64_t kMostLength = 1 << 24;
  const auto text = column.index < fields.size() ? fields[column.index] : std::string_view();
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status != std::errc() || end != text.data() + text.size() || value < 1 ||
      value > kMostLength) {
    return invalid_argument(
        fmt::format("line {}, column {}: '{}' seen, expected an integer from 1 to {}", line,
                    column.name, text, kMostLength));
  }
  return value;
}

// Chooses which of the valid tokens are masked, without replacement, and masks them.
void mask_tokens(TokenBatch& tokens, int side, std::int64_t mask_token, Random& random) {
  const auto length = tokens.lengths[side];
  std::vector<std::int64_t> candidates;
  for (std::int64_t row = 0; row < tokens.batch; ++row) {
    for (std::int64_t i = 0; i < tokens.valid[side][row]; ++i) {
      candidates.push_back(row * length + i);
    }
  }
  const auto share = [](std::int64_t count) {
    return std::max<std::int64_t>(1, std::llround(kMaskedShare * static_cast<double>(count)));
  };
  const auto rows = share(tokens.batch * length);
  const auto masked = std::min(rows, share(static_cast<std::int64_t>(candidates.size())));
  tokens.positions.assign(rows, 0);
  tokens.labels.assign(rows, TokenBatch::kIgnored);
  for (std::int64_t i = 0; i < masked; ++i) {  // the first steps of Fisher-Yates
    std::swap(candidates[i], candidates[i + random.below(candidates.size() - i)]);
  }
  std::sort(candidates.begin(), candidates.begin() + masked);
  for (std::int64_t i = 0; i < masked; ++i) {
    tokens.positions[i] = candidates[i];
    tokens.labels[i] = std::exchange(tokens.ids[side][candidates[i]], mask_token);
  }
}

}  // namespace

std::int64_t Dataset::longest(int dimension) const {
  std::int64_t most = 0;
  for (const auto& example : examples) most = std::max(most, example.lengths[dimension]);
  return most;
}

Result<Dataset> parse_text(std::string content, std::int64_t max_length) {
  Dataset data;
  data.kind = DataKind::kText;
  data.text = std::move(content);
  std::string_view rest = data.text;
  while (const auto line = take_line(rest)) {
    if (line->empty()) continue;
    Example example;
    example.lengths[0] = cut(static_cast<std::int64_t>(line->size()), max_length);
    example.text_offset = static_cast<std::size_t>(line->data() - data.text.data());
    data.examples.push_back(example);
  }
  if (data.examples.empty()) return invalid_argument("no line with text, expected at least one");
  return data;
}

Result<Dataset> parse_lengths(std::string_view content, const std::vector<std::string>& names,
                              std::int64_t max_length) {
  Dataset data;
  data.kind = DataKind::kLengths;
  const auto header = take_line(content);
  if (!header) return invalid_argument("the file is empty, expected a header and integers");
  const auto columns = find_columns(split_fields(*header), names);
  if (!columns) return columns.error();
  data.dimensions = static_cast<int>(columns->size());
  std::int64_t line_number = 1;
  while (const auto line = take_line(content)) {
    ++line_number;
    if (line->empty()) continue;
    const auto fields = split_fields(*line);
    Example example;
    for (std::size_t i = 0; i < columns->size(); ++i) {
      const auto length = read_length(fields, (*columns)[i], line_number);
      if (!length) return length.error();
      example.lengths[i] = cut(*length, max_length);
    }
    data.examples.push_back(example);
  }
  if (data.examples.empty()) return invalid_argument("no line of lengths after the header");
  return data;
}

Result<Dataset> load_data(const DataOptions& options, std::int64_t max_length) {
  const auto unreadable = [&options] {
    return Error{ErrorCode::kNotFound, fmt::format("--data: cannot read '{}'", options.path)};
  };
  std::error_code code;
  if (std::filesystem::is_directory(options.path, code)) return unreadable();  // reading one throws
  std::ifstream file(options.path, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) return unreadable();
  auto data = options.kind == DataKind::kText ? parse_text(std::move(content), max_length)
                                              : parse_lengths(content, options.columns, max_length);
  if (!data) return data.error().with_context("--data: " + options.path);
  return data;
}

std::vector<Batch> make_batches(const Dataset& data, const BatchOptions& options) {
  const auto count = data.examples.size();
  std::vector<std::uint32_t> order(count);
  std::vector<Batch> batches;
  batches.reserve(options.steps);
  for (std::uint64_t epoch = 0; std::ssize(batches) < options.steps; ++epoch) {
    std::iota(order.begin(), order.end(), 0U);
    Random random(options.seed, epoch);
    shuffle(std::span(order), random);
    for (std::size_t first = 0; first < count && std::ssize(batches) < options.steps;) {
      const auto size = std::min<std::size_t>(options.batch, count - first);
      Batch batch;
      const auto members = std::span(order).subspan(first, size);
      batch.members.assign(members.begin(), members.end());
      std::array<std::int64_t, 3> key = {static_cast<std::int64_t>(size), 0, 0};
      for (const auto member : batch.members) {
        for (int d = 0; d < data.dimensions; ++d) {
          key[d + 1] = std::max(key[d + 1], data.examples[member].lengths[d]);
        }
      }
      batch.shape = ShapeKey(std::span<const std::int64_t>(key.data(), data.dimensions + 1));
      batches.push_back(std::move(batch));
      first += size;
    }
  }
  return batches;
}

TokenBatch make_tokens(const Dataset& data, const Batch& batch, std::int64_t vocab, Random random) {
  TokenBatch tokens;
  tokens.batch = batch.shape[0];
  const auto mask_token = vocab - 1;
  for (int side = 0; side < data.dimensions; ++side) {
    const auto length = batch.shape[side + 1];
    tokens.lengths[side] = length;
    auto& ids = tokens.ids[side];
    ids.assign(tokens.batch * length, 0);
    for (std::size_t row = 0; row < batch.members.size(); ++row) {
      const auto& example = data.examples[batch.members[row]];
      const auto valid = example.lengths[side];
      tokens.valid[side].push_back(valid);
      for (std::int64_t i = 0; i < valid; ++i) {
        ids[row * length + i] = data.kind == DataKind::kText
                                    ? static_cast<unsigned char>(data.text[example.text_offset + i])
                                    : static_cast<std::int64_t>(random.below(mask_token));
      }
    }
  }
  mask_tokens(tokens, data.dimensions - 1, mask_token, random);
  return tokens;
}

}  // namespace pudica::train
