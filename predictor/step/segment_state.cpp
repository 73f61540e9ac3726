// The segment store as text, and back.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>

#include "predictor/step/segment_store.h"

namespace pudica {
namespace {

bool is_class(int number) { return number >= 0 && number <= 0xFFFF; }

// Kind, class, kind of mode, step, variant.
bool are_of_a_key(const std::array<int, 5>& part) {
  return part[0] >= 0 && part[0] <= static_cast<int>(SegmentKind::kReleased) && is_class(part[1]) &&
         part[2] >= 0 && part[2] <= static_cast<int>(Mode::Kind::kFull) && is_class(part[3]) &&
         part[4] >= 0 && part[4] <= 255;
}

// Of states whose heads hold nothing that layers left for them; older ones lack it.
constexpr const char* kHeadsApart = "heads-apart";

}  // namespace

std::string SegmentStore::serialize() const {
  std::ostringstream out;
  for (const auto& [key, shape] : only_shape_) {
    out << "once " << static_cast<int>(key.kind) << ' ' << key.layer_class << ' '
        << static_cast<int>(key.mode.kind) << ' ' << key.mode.step << ' '
        << static_cast<int>(key.variant) << ' ' << shape.to_named_string() << '\n';
  }
  out << kHeadsApart << '\n';
  for (const std::uint16_t layer_class : refusing_) out << "refuses " << layer_class << '\n';
  out << "pace " << std::hexfloat << relative_times_.pace() << std::defaultfloat << '\n';
  const std::string times = relative_times_.serialize();
  out << "times " << times.size() << '\n' << times << '\n';
  out << "predictor\n" << predictor_->serialize();
  return out.str();
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
  if (what == "behind" || what == "head") return true;  // of older heads
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
  memo_.clear();
  std::istringstream in(text);
  const Error corrupt{ErrorCode::kCorrupt, "learned state: a line of the segment store is damaged"};
  bool heads_apart = false;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "times") {  // files of before do not have them
      if (auto done = restore_times(words, in, text.size()); !done) return done;
      continue;
    }
    if (what == kHeadsApart) {
      heads_apart = true;
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
    for (const SegmentKey& key : predictor_->segments()) {
      // Of gaps one is the head until the forward returns.
      const bool holds_releases = key.kind == SegmentKind::kHead || key.kind == SegmentKind::kGap;
      if (holds_releases && !heads_apart) forget(key);
    }
    refresh_index();
    return {};
  }
  return corrupt;
}

}  // namespace pudica
