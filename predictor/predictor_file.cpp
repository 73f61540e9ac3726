#include "predictor/predictor_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/dimension_names.h"

namespace pudica::predictor {
namespace {

constexpr std::string_view kMagic = "pudica-predictor";
constexpr std::string_view kEnd = "checksum ";
constexpr std::int64_t kVersion = 2;
constexpr std::int64_t kWithoutRidges = 1;  // the version before: read as well
constexpr std::size_t kMostSegments = 65536;
constexpr std::size_t kMostSamples = 4096;
constexpr std::size_t kLongestName = 64;

// ---- writing

void put(std::string& out, std::int64_t value) {
  out += ' ';
  out += std::to_string(value);
}

void put(std::string& out, std::size_t value) { put(out, static_cast<std::int64_t>(value)); }

// The shortest text that reads back as the same number.
void put(std::string& out, double value) {
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  out += ' ';
  out.append(buffer.data(), end);
}

void put(std::string& out, const std::vector<double>& values) {
  put(out, values.size());
  for (const double value : values) put(out, value);
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Names are the user's: all but letters, digits and '_' is written as %xx.
void put_name(std::string& out, std::string_view name) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += " =";
  for (const char c : name.substr(0, kLongestName)) {
    if (is_plain(c)) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kDigits[byte >> 4U];
    out += kDigits[byte & 15U];
  }
}

void put_sample(std::string& out, const StoredSample& sample) {
  out += "sample";
  for (const std::int64_t value : sample.shape.values()) put(out, value);
  put(out, sample.net_bytes);
  put(out, sample.peak_bytes);
  put(out, static_cast<std::int64_t>(sample.has_deltas));
  put(out, sample.deltas.size());
  for (const std::int64_t delta : sample.deltas) put(out, delta);
  out += '\n';
}

void put_bounds(std::string& out, const TimeState::Bounds& bounds) {
  put(out, bounds.least_rate);
  put(out, bounds.largest_rate);
  put(out, bounds.least_volume);
  put(out, bounds.largest_volume);
}

void put_time(std::string& out, const TimeState& time) {
  out += "time";
  put(out, time.samples);
  put(out, time.reference_volume);
  put(out, time.scales);
  put(out, time.early.size());
  for (const TimeState::Early& early : time.early) {
    put(out, early.features);
    put(out, early.rate);
  }
  put(out, time.gram);
  put(out, time.moments);
  put(out, time.ratios);
  put(out, time.coefficients);
  put(out, time.published);
  put(out, time.published_spread);
  put_bounds(out, time.bounds);
  put_bounds(out, time.published_bounds);
  put(out, time.ridge);
  out += '\n';
}

// ---- reading

// Words of a text. After the first mismatch every further read fails.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] bool at_end() const { return rest_.find_first_not_of(" \n") == rest_.npos; }
  [[nodiscard]] std::size_t remaining() const { return rest_.size(); }
  void fail() { failed_ = true; }
  void fail(std::string reason) {
    if (!failed_) reason_ = std::move(reason);
    failed_ = true;
  }
  // Empty: not what write_models() writes.
  [[nodiscard]] const std::string& reason() const { return reason_; }

  std::string_view word() {
    const std::size_t begin = rest_.find_first_not_of(" \n");
    if (failed_ || begin == std::string_view::npos) {
      failed_ = true;
      return {};
    }
    const std::size_t end = std::min(rest_.find_first_of(" \n", begin), rest_.size());
    const std::string_view word = rest_.substr(begin, end - begin);
    rest_.remove_prefix(end);
    return word;
  }

  void expect(std::string_view wanted) {
    if (word() != wanted) failed_ = true;
  }

  template <typename T>
  T number() {
    const std::string_view text = word();
    T value{};
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || end != text.data() + text.size()) failed_ = true;
    return failed_ ? T{} : value;
  }

  // A number of things of at least two characters each that are still to come.
  std::size_t count(std::size_t most) {
    const auto value = number<std::int64_t>();
    const bool possible = value >= 0 && static_cast<std::uint64_t>(value) <= most &&
                          static_cast<std::uint64_t>(value) <= remaining() / 2;
    if (!possible) failed_ = true;
    return failed_ ? 0 : static_cast<std::size_t>(value);
  }

  std::vector<double> numbers() {
    std::vector<double> values(count(kMostMonomials * kMostMonomials));
    for (double& value : values) value = number<double>();
    return values;
  }

 private:
  std::string_view rest_;
  std::string reason_;
  bool failed_ = false;
};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::string read_name(Reader& reader) {
  const std::string_view text = reader.word();
  std::string name;
  if (!text.starts_with('=')) reader.fail();
  for (std::size_t i = 1; i < text.size() && !reader.failed(); ++i) {
    if (is_plain(text[i])) {
      name += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (text[i] != '%' || high < 0 || low < 0) reader.fail();
    name += static_cast<char>(high * 16 + low);
    i += 2;
  }
  if (name.size() > kLongestName) reader.fail();
  return name;
}

DimensionNames read_names(Reader& reader) {
  DimensionNames names(reader.count(ShapeKey::kMaxDimensions));
  for (std::string& name : names) name = read_name(reader);
  if (!reader.failed() && intern_foreign_names(names) == nullptr) {
    reader.fail("new names of dimensions, and there are " + std::to_string(kMostDimensionNames) +
                " sets of names already");
  }
  return names;
}

SegmentKey read_key(Reader& reader) {
  SegmentKey key;
  const auto kind = reader.number<std::uint16_t>();
  if (kind > static_cast<std::uint16_t>(SegmentKind::kReleased)) reader.fail();
  key.kind = static_cast<SegmentKind>(kind);
  key.layer_class = reader.number<std::uint16_t>();
  const auto mode = reader.number<std::uint16_t>();
  if (mode > static_cast<std::uint16_t>(Mode::Kind::kFull)) reader.fail();
  key.mode.kind = static_cast<Mode::Kind>(mode);
  key.mode.step = reader.number<std::uint16_t>();
  const auto variant = reader.number<std::uint16_t>();
  if (variant > 255) reader.fail();
  key.variant = static_cast<std::uint8_t>(variant);
  return key;
}

StoredSample read_sample(Reader& reader, const DimensionNames& names) {
  StoredSample sample;
  reader.expect("sample");
  std::vector<std::int64_t> values(names.size());
  for (std::int64_t& value : values) value = reader.number<std::int64_t>();
  sample.net_bytes = reader.number<std::int64_t>();
  sample.peak_bytes = reader.number<std::int64_t>();
  sample.has_deltas = reader.number<std::uint8_t>() != 0;
  sample.deltas.resize(reader.count(kMostEvents));
  for (std::int64_t& delta : sample.deltas) delta = reader.number<std::int64_t>();
  if (!reader.failed() && !names.empty()) sample.shape = ShapeKey(names, values);
  return sample;
}

TimeState::Bounds read_bounds(Reader& reader) {
  TimeState::Bounds bounds;
  bounds.least_rate = reader.number<double>();
  bounds.largest_rate = reader.number<double>();
  bounds.least_volume = reader.number<double>();
  bounds.largest_volume = reader.number<double>();
  return bounds;
}

TimeState read_time(Reader& reader, std::int64_t version) {
  TimeState time;
  reader.expect("time");
  time.samples = reader.number<std::int64_t>();
  time.reference_volume = reader.number<double>();
  time.scales = reader.numbers();
  time.early.resize(reader.count(TimeModel::kEarly));
  for (TimeState::Early& early : time.early) {
    early.features = reader.numbers();
    early.rate = reader.number<double>();
  }
  time.gram = reader.numbers();
  time.moments = reader.numbers();
  time.ratios = reader.numbers();
  time.coefficients = reader.numbers();
  time.published = reader.numbers();
  time.published_spread = reader.number<double>();
  time.bounds = read_bounds(reader);
  time.published_bounds = read_bounds(reader);
  if (version != kWithoutRidges) time.ridge = reader.number<double>();
  return time;
}

void read_segment(Reader& reader, std::int64_t version, const PredictorOptions& options,
                  SegmentModels& models) {
  reader.expect("segment");
  const SegmentKey key = read_key(reader);
  const auto observations = reader.number<std::int64_t>();
  const DimensionNames names = read_names(reader);
  std::vector<StoredSample> samples;
  const std::size_t count = reader.count(kMostSamples);
  for (std::size_t i = 0; i < count && !reader.failed(); ++i) {
    samples.push_back(read_sample(reader, names));
  }
  TimeState time = read_time(reader, version);
  if (reader.failed()) return;
  const auto [entry, is_new] = models.emplace(key, SegmentModel(key, options, names.size()));
  const bool accepted =
      is_new && entry->second.set_state(std::move(samples), observations, std::move(time));
  if (!accepted) reader.fail("what it says of " + to_string(key) + " was measured by no step");
}

Error corrupt(const std::string& what) {
  return Error{ErrorCode::kCorrupt, "predictor state: " + what};
}

}  // namespace

std::uint64_t checksum(std::string_view text) {
  std::uint64_t state = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return state;
}

std::string with_checksum(std::string body) {
  const std::string sum = std::to_string(checksum(body));
  body += kEnd;
  body += sum;
  body += '\n';
  return body;
}

std::string write_models(const SegmentModels& models) {
  std::string out(kMagic);
  put(out, kVersion);
  put(out, models.size());
  out += '\n';
  for (const auto& [key, model] : models) {
    out += "segment";
    put(out, static_cast<std::int64_t>(key.kind));
    put(out, static_cast<std::int64_t>(key.layer_class));
    put(out, static_cast<std::int64_t>(key.mode.kind));
    put(out, static_cast<std::int64_t>(key.mode.step));
    put(out, static_cast<std::int64_t>(key.variant));
    put(out, model.observations());
    put(out, model.dimensions());
    if (model.dimensions() > 0) {
      for (const std::string& name : model.samples().front().shape.names()) put_name(out, name);
    }
    put(out, model.samples().size());
    out += '\n';
    for (const StoredSample& sample : model.samples()) put_sample(out, sample);
    put_time(out, model.time().state());
  }
  return with_checksum(std::move(out));
}

Result<SegmentModels> read_models(std::string_view text, const PredictorOptions& options) {
  const std::size_t end = text.rfind(kEnd);
  if (end == std::string_view::npos) return corrupt("no checksum, so it is cut off");
  const std::string_view body = text.substr(0, end);
  if (with_checksum(std::string(body)) != text) return corrupt("the checksum does not agree");
  Reader reader(body);
  reader.expect(kMagic);
  if (reader.failed()) return corrupt("it does not begin with '" + std::string(kMagic) + "'");
  const auto version = reader.number<std::int64_t>();
  if (version != kVersion && version != kWithoutRidges) {
    return corrupt("version " + std::to_string(version) + ", expected " + std::to_string(kVersion));
  }
  SegmentModels models;
  const std::size_t segments = reader.count(kMostSegments);
  for (std::size_t i = 0; i < segments && !reader.failed(); ++i) {
    read_segment(reader, version, options, models);
  }
  if (!reader.reason().empty()) return corrupt(reader.reason());
  if (reader.failed() || !reader.at_end()) {
    return corrupt("unreadable at " + std::to_string(body.size() - reader.remaining()) + " of " +
                   std::to_string(body.size()) + " characters");
  }
  return models;
}

}  // namespace pudica::predictor
