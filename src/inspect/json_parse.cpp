// Reading JSON text into a value that keeps the order of fields.
#include <string>
#include <utility>
#include <vector>

#include "base/text_limits.h"
#include "inspect/json_values.h"

namespace pudica::inspect {
namespace {

constexpr int kBeyondLimits = 599;  // the library's own numbers end below
// Room made at once for the fields of an object: as the fields are kept in a list, making more room
// copies them with all that they hold. The library's own builder, which makes none, takes twice as
// long on a step record.
constexpr std::size_t kUsualFields = 20;

// Builds a value from the events of the library's parser.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder() = default;
  // Elements of the root's list `streamed` go to `take` as they end, and are then dropped.
  Builder(std::string_view streamed, const ElementSink* take) : streamed_(streamed), take_(take) {}

  bool null() override { return put(Json()); }
  bool boolean(bool value) override { return put(Json(value)); }
  bool number_integer(number_integer_t value) override { return put(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return put(Json(value)); }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return put(Json(value));
  }
  bool string(string_t& value) override { return put(Json(std::move(value))); }
  bool binary(binary_t& value) override { return put(Json(std::move(value))); }

  bool start_object(std::size_t /*elements*/) override {
    Json object = Json::object();
    object.get_ref<Json::object_t&>().reserve(kUsualFields);
    open_.push_back(place(std::move(object)));
    return true;
  }
  bool key(string_t& name) override {
    if (open_.size() == 1) names_streamed_ = take_ != nullptr && name == streamed_;
    // A name given twice: the later value counts.
    field_ = &(*open_.back())[std::move(name)];
    return true;
  }
  bool end_object() override { return end(); }
  bool start_array(std::size_t /*elements*/) override {
    open_.push_back(place(Json::array()));
    return true;
  }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    // Thrown as what it is, which the base class has lost.
    if (const auto* const syntax = dynamic_cast<const Json::parse_error*>(&error)) throw *syntax;
    if (const auto* const range = dynamic_cast<const Json::out_of_range*>(&error)) throw *range;
    throw Json::other_error::create(kBeyondLimits, error.what(), static_cast<const Json*>(nullptr));
  }

  Json take() { return std::move(root_); }

 private:
  bool put(Json value) {
    place(std::move(value));
    hand_over();
    return true;
  }
  // Only what is open innermost grows: the places of the others stay as they are.
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    *field_ = std::move(value);
    return field_;
  }
  bool end() {
    open_.pop_back();
    hand_over();
    return true;
  }
  // After a value has ended; around an element of the list the root and the list are open.
  void hand_over() {
    if (!names_streamed_ || open_.size() != 2 || !open_.back()->is_array()) return;
    (*take_)(open_.back()->back());
    open_.back()->erase(open_.back()->size() - 1);
  }

  Json root_;
  std::vector<Json*> open_;
  Json* field_ = nullptr;
  std::string_view streamed_;
  const ElementSink* take_ = nullptr;
  bool names_streamed_ = false;  // the root's field that is being read is the list
};

Json built(std::string_view text, Builder builder) {
  const std::string beyond = beyond_json_limits(text);
  if (!beyond.empty()) {
    throw Json::other_error::create(kBeyondLimits, beyond, static_cast<const Json*>(nullptr));
  }
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace

Json parse(std::string_view text) { return built(text, Builder()); }

Json parse_streaming(std::string_view text, std::string_view list, const ElementSink& take) {
  return built(text, Builder(list, &take));
}

}  // namespace pudica::inspect
