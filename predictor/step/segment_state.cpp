// The segment store as text, and back.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>

#include "predictor/step/segment_store.h"

namespace pudica {
namespace {

constexpr int kMostLayers = 65536;

bool is_class(int number) { return number >= 0 && number <= 0xFFFF; }

// Kind, class, kind of mode, step, variant.
bool are_of_a_key(const std::array<int, 5>& part) {
  return part[0] >= 0 && part[0] <= static_cast<int>(SegmentKind::kHeldOutput) &&
         is_class(part[1]) && part[2] >= 0 && part[2] <= static_cast<int>(Mode::Kind::kFull) &&
         is_class(part[3]) && part[4] >= 0 && part[4] <= 255;
}

// Class and variant, and where it is told the mode, then how many. False: damage.
bool read_dropped(std::istringstream& words, bool has_mode, DroppedLayers& dropped) {
  int layer_class = 0;
  int variant = 0;
  int count = 0;
  std::string name = to_string(Mode::full());
  words >> layer_class >> variant;
  if (has_mode) words >> name;
  words >> count;
  const auto mode = parse_mode(name);
  if (!words || !mode || !is_class(layer_class) || variant < 0 || variant > 255 || count < 0 ||
      count > kMostLayers) {
    return false;
  }
  dropped[{static_cast<std::uint16_t>(layer_class), static_cast<std::uint8_t>(variant), *mode}] =
      count;
  return true;
}

}  // namespace

std::string SegmentStore::serialize() const {
  std::ostringstream out;
  for (const auto& [key, shape] : only_shape_) {
    out << "once " << static_cast<int>(key.kind) << ' ' << key.layer_class << ' '
        << static_cast<int>(key.mode.kind) << ' ' << key.mode.step << ' '
        << static_cast<int>(key.variant) << ' ' << shape.to_named_string() << '\n';
  }
  for (std::size_t of = 0; of < heads_.size(); ++of) {
    for (std::size_t number = 0; number < heads_[of].size(); ++number) {
      out << "behind " << of << ' ' << number << ' ' << heads_[of][number].latest;
      for (const auto& [layer, count] : heads_[of][number].dropped) {
        out << ' ' << layer.layer_class << ' ' << static_cast<int>(layer.variant) << ' '
            << to_string(layer.mode) << ' ' << count;
      }
      out << '\n';
    }
  }
  for (const std::uint16_t layer_class : refusing_) out << "refuses " << layer_class << '\n';
  out << "pace " << std::hexfloat << relative_times_.pace() << std::defaultfloat << '\n';
  const std::string times = relative_times_.serialize();
  out << "times " << times.size() << '\n' << times << '\n';
  out << "predictor\n" << predictor_->serialize();
  return out.str();
}

// A head's number, how late it was, and the layers that were not kept before it. False: damage.
bool SegmentStore::restore_head(std::istringstream& words) {
  std::size_t of = 0;
  std::size_t number = 0;
  std::uint64_t latest = 0;
  if (!(words >> of >> number >> latest) || of >= heads_.size()) return false;
  Heads& heads = heads_.at(of);
  if (number != heads.size() || number >= kMostHeads) return false;
  heads.push_back({{}, latest});
  heads_measured_ = std::max(heads_measured_, latest);
  while (!(words >> std::ws).eof()) {
    if (!read_dropped(words, /*has_mode=*/true, heads.back().dropped)) return false;
  }
  return true;
}

// Of versions that knew one head only, layers that ran `full` before it. False: damage.
bool SegmentStore::restore_only_head(std::istringstream& words) {
  std::size_t of = 0;
  if (!(words >> of) || of >= heads_.size()) return false;
  Heads& heads = heads_.at(of);
  if (heads.empty()) heads.emplace_back();
  return read_dropped(words, /*has_mode=*/false, heads.front().dropped);
}

// One line but the predictor's. False: damage.
bool SegmentStore::restore_line(const std::string& what, std::istringstream& words) {
  if (what == "once") {
    std::array<int, 5> part{};
    std::string name;
    for (int& number : part) words >> number;
    words >> name;
    const auto shape = ShapeKey::parse(name);
    if (!words || !shape || !are_of_a_key(part)) return false;
    SegmentKey key;
    key.kind = static_cast<SegmentKind>(part[0]);
    key.layer_class = static_cast<std::uint16_t>(part[1]);
    key.mode.kind = static_cast<Mode::Kind>(part[2]);
    key.mode.step = static_cast<std::uint16_t>(part[3]);
    key.variant = static_cast<std::uint8_t>(part[4]);
    only_shape_.insert_or_assign(key, *shape);
    return true;
  }
  if (what == "behind") return restore_head(words);
  if (what == "head") return restore_only_head(words);
  if (what == "pace") {
    std::string value;
    words >> value;
    return relative_times_.set_pace(std::strtod(value.c_str(), nullptr));
  }
  std::uint16_t layer_class = 0;
  if (what != "refuses" || !(words >> layer_class)) return false;
  refusing_.insert(layer_class);
  return true;
}

// Behind the line that says how long they are, of at most `most` bytes.
Result<void> SegmentStore::restore_times(std::istringstream& words, std::istringstream& in,
                                         std::size_t most) {
  const Error corrupt{ErrorCode::kCorrupt, "learned state: its times are cut off"};
  std::size_t size = 0;
  if (!(words >> size) || size > most) return corrupt;
  std::string times(size, '\0');
  if (!in.read(times.data(), static_cast<std::streamsize>(size))) return corrupt;
  in.ignore(1);
  auto done = relative_times_.restore(times);
  if (!done) return done.error().with_context("learned state: times");
  return {};
}

Result<void> SegmentStore::restore(const std::string& text) {
  std::istringstream in(text);
  const Error corrupt{ErrorCode::kCorrupt, "learned state: a line of the segment store is damaged"};
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "times") {  // files of before do not have them
      if (auto done = restore_times(words, in, text.size()); !done) return done;
      continue;
    }
    if (what != "predictor") {
      if (!restore_line(what, words)) return corrupt;
      continue;
    }
    auto fresh = factory_();
    const auto rest = static_cast<std::size_t>(in.tellg());
    auto done = fresh->restore(rest <= text.size() ? text.substr(rest) : std::string());
    if (!done) return done.error().with_context("learned state");
    predictor_ = std::move(fresh);
    // Versions that knew one head only wrote no line of one that no layer had released bytes in.
    for (const SegmentKey& key : predictor_->segments()) {
      if (key.kind != SegmentKind::kHead || key.place() >= kMostHeads) continue;
      Heads& heads = heads_.at(head_index(key.step_kind(), key.accumulates()));
      if (heads.size() <= key.place()) heads.resize(key.place() + 1U);
    }
    refresh_index();
    return {};
  }
  return corrupt;
}

}  // namespace pudica
