// The controller's learned state as text: what is saved, and how it is read.
#include <algorithm>
#include <array>
#include <iomanip>
#include <optional>
#include <sstream>
#include <utility>

#include "controller/controller_impl.h"
#include "controller/learned_state.h"

namespace pudica {
namespace {

// Of a model and of a menu: larger numbers are damage.
constexpr std::size_t kMostClasses = 4096;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 48U;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50U;
constexpr int kLargestVariant = 255;
constexpr std::size_t kMostStrangeShapes = 512;  // as the hook layer tells

std::int64_t written(Bytes bytes) { return std::clamp<std::int64_t>(bytes.count(), 0, kMostBytes); }

Error damaged(const std::string& line) {
  return {ErrorCode::kCorrupt, "learned state: cannot read '" + line.substr(0, 60) + "'"};
}

// What a state holds beside the segments.
struct SavedHeader {
  StepStructure structure;  // without layers
  struct Kind {
    std::vector<StepStructure::Layer> layers;
    std::int64_t recorded = 0;
  };
  std::vector<Kind> kinds = std::vector<Kind>(1);  // of steps
  std::vector<double> errors;
  std::array<std::optional<Bytes>, 2> base_bytes;
  Bytes returning_bytes{0};

  // Text that may hold anything: its length in the line, itself behind it. False: damage.
  static bool read_text(std::istringstream& words, std::istringstream& in, std::size_t most,
                        std::string& out) {
    std::size_t length = 0;
    words >> length;
    if (!words || length > most) return false;
    out.assign(length, '\0');
    in.read(out.data(), static_cast<std::streamsize>(length)).ignore();
    return static_cast<bool>(in);
  }

  // The shape in which the menu was found, a promise for each step, and where it does not hold.
  static bool read_promises(std::istringstream& words, StepStructure::Menu& menu) {
    std::string text;
    if (!(words >> text)) return true;  // of a state that does not tell them
    const auto found_at = ShapeKey::parse(text);
    if (!found_at) return false;
    menu.shape = *found_at;
    for (std::size_t k = 0; k < menu.steps.size(); ++k) {
      StepStructure::Menu::Promise& promise = menu.promises.emplace_back();
      words >> promise.freed_bytes >> promise.work_share;
      const bool is_sound = promise.freed_bytes >= 0 && promise.freed_bytes <= kMostBytes &&
                            promise.work_share >= 0 && promise.work_share <= 1;
      if (!words || !is_sound) return false;
    }
    while (words >> text) {
      auto shape = ShapeKey::parse(text);
      if (!shape || menu.not_at.size() == kMostStrangeShapes) return false;
      menu.not_at.push_back(*shape);
    }
    return true;
  }

  bool read_menu(std::istringstream& words) {
    std::size_t layer_class = 0;
    std::size_t steps = 0;
    StepStructure::Menu menu;
    words >> layer_class >> menu.id >> steps;
    if (!words || layer_class > kMostClasses || steps > kMostClasses) return false;
    menu.steps.resize(steps);
    if (!read_promises(words, menu)) return false;
    if (structure.menus.size() <= layer_class) structure.menus.resize(layer_class + 1);
    structure.menus[layer_class] = std::move(menu);
    return true;
  }

  bool read_step(std::istringstream& words, std::istringstream& in, std::size_t most) {
    std::size_t layer_class = 0;
    std::size_t step = 0;
    words >> layer_class >> step;
    if (!words || layer_class >= structure.menus.size()) return false;
    auto& steps = structure.menus[layer_class].steps;
    return step < steps.size() && read_text(words, in, most, steps[step]);
  }

  static bool read_bytes(std::istringstream& words, Bytes& out) {
    std::int64_t bytes = 0;
    words >> bytes;
    out = Bytes(bytes);
    return words && bytes >= 0 && bytes <= kMostBytes;
  }

  // One line; a class's name and a step's words take more of `in`. False: damage.
  bool read(const std::string& line, std::istringstream& in, std::size_t most) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "menu") return read_menu(words);
    if (what == "step") return read_step(words, in, most);
    if (what == "returning") return read_bytes(words, returning_bytes);
    if (what == "class") return read_text(words, in, most, structure.class_names.emplace_back());
    if (what == "kind") {
      kinds.emplace_back();
      return kinds.size() <= StepKinds::kMost;
    }
    if (what == "recorded") {
      std::int64_t& recorded = kinds.back().recorded;
      words >> recorded;
      return words && recorded >= 0 && recorded <= kMostSteps;
    } else if (what == "layer") {
      StepStructure::Layer layer;
      int variant = 0;
      bool apart = false;
      if (!(words >> layer.layer_class >> variant)) return false;
      if (words >> apart) layer.apart = apart;
      words.clear();  // where it is not told
      if (variant < 0 || variant > kLargestVariant) return false;
      layer.variant = static_cast<std::uint8_t>(variant);
      kinds.back().layers.push_back(layer);
    } else if (what == "base") {
      std::size_t present = 0;
      words >> present;
      return present <= 1 && read_bytes(words, base_bytes.at(present).emplace());
    } else if (what == "error") {
      words >> errors.emplace_back();
    } else {
      return false;
    }
    return static_cast<bool>(words);
  }
};

void write_menu(std::size_t layer_class, const StepStructure::Menu& menu, std::ostream& out) {
  out << "menu " << layer_class << ' ' << menu.id << ' ' << menu.steps.size();
  const bool promises = menu.promises.size() == menu.steps.size() && menu.shape.size() > 0;
  if (promises) {
    out << ' ' << menu.shape.to_string();
    for (const auto& promise : menu.promises) {
      out << ' ' << written(Bytes(promise.freed_bytes)) << ' ' << promise.work_share;
    }
    for (const ShapeKey& shape : menu.not_at) out << ' ' << shape.to_string();
  }
  out << '\n';
  for (std::size_t k = 0; k < menu.steps.size(); ++k) {
    out << "step " << layer_class << ' ' << k << ' ' << menu.steps[k].size() << '\n'
        << menu.steps[k] << '\n';
  }
}

}  // namespace

std::string ControllerImpl::serialize(const std::string& fingerprint) const {
  return seal_state(state_body(), fingerprint);
}

std::string ControllerImpl::state_body() const {
  std::ostringstream out;
  out << std::setprecision(17);
  for (const auto& kind : kinds_) {
    if (kind->number > 0) out << "kind\n";
    out << "recorded " << kind->recorded_steps << '\n';
    for (const StepStructure::Layer& layer : kind->structure.layers) {
      out << "layer " << layer.layer_class << ' ' << static_cast<int>(layer.variant)
          << (layer.apart ? " 1" : "") << '\n';
    }
  }
  for (const std::string& name : told_->structure.class_names) {
    out << "class " << name.size() << '\n' << name << '\n';  // a name may hold anything
  }
  for (std::size_t i = 0; i < told_->structure.menus.size(); ++i) {
    write_menu(i, told_->structure.menus[i], out);
  }
  for (const std::size_t present : {0U, 1U}) {
    const auto& base = base_.latest()[present];
    if (base) out << "base " << present << ' ' << written(*base) << '\n';
  }
  if (base_.most_returning() > Bytes(0)) {
    out << "returning " << written(base_.most_returning()) << '\n';
  }
  for (const double error : room_.margin.errors()) out << "error " << error << '\n';
  out << "segments\n" << learner_.serialize();
  return out.str();
}

Result<void> ControllerImpl::restore(const std::string& text, const std::string& fingerprint) {
  auto body = open_state(text, fingerprint);
  if (!body) return body.error();
  return take_state_body(*body);
}

Result<void> ControllerImpl::take_state_body(const std::string& body) {
  std::istringstream in(body);
  SavedHeader header;
  for (std::string line; std::getline(in, line);) {
    if (line != "segments") {
      if (!header.read(line, in, body.size())) return damaged(line);
      continue;
    }
    const auto rest = static_cast<std::size_t>(in.tellg());
    auto done = learner_.restore(rest <= body.size() ? body.substr(rest) : std::string());
    if (!done) return done;
    room_.margin.reset();
    for (const double error : header.errors) room_.margin.add(error);
    if (!options_.trusts_restored_states) claims_.begin();
    std::vector<StepStructure> structures(header.kinds.size(), header.structure);
    for (std::size_t i = 0; i < structures.size(); ++i) {
      structures[i].layers = std::move(header.kinds[i].layers);
    }
    kinds_.restore(std::move(structures));
    waiting_->forget(this);
    for (const auto& kind : kinds_) kind->recorded_steps = header.kinds[kind->number].recorded;
    kind_ = told_ = &kinds_[0];
    first_apart_.clear();
    for (const auto& kind : kinds_) {
      const auto& layers = kind->structure.layers;
      const bool apart = !layers.empty() && (layers[0].variant & SegmentKey::kFirstOfClass) != 0;
      if (apart) first_apart_.insert(layers[0].layer_class);
    }
    base_.restore(header.base_bytes, header.returning_bytes);
    broken_ = false;
    if (const StepStructure latest = latest_; !latest.layers.empty()) on_structure(latest);
    return {};
  }
  return damaged("no segments");
}

}  // namespace pudica
