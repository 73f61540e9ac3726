// Reading a step record; step_record.cpp writes it.
#include <array>
#include <utility>

#include "inspect/field_reader.h"
#include "inspect/json.h"
#include "inspect/json_message.h"
#include "inspect/step_record_json.h"

namespace pudica {
namespace {

using inspect::FieldReader;
using inspect::Json;

constexpr std::int64_t kMost16 = 0xffff;
constexpr std::int64_t kMost8 = 0xff;
constexpr std::size_t kMostStrangeShapes = 512;
constexpr std::int64_t kMostFreed = std::int64_t{1} << 50U;
constexpr std::int64_t kLeast64 = std::numeric_limits<std::int64_t>::min();

std::optional<Error> error_of(const FieldReader& reader) {
  return reader.ok() ? std::nullopt : std::optional(reader.error());
}

std::optional<SegmentKind> segment_kind(const std::string& name) {
  using enum SegmentKind;
  for (const SegmentKind kind :
       std::array{kGap, kForward, kHead, kBackward, kEpilogue, kOptimizer, kRecompute}) {
    if (to_string(kind) == name) return kind;
  }
  return std::nullopt;
}

std::optional<Error> read_delta(const Json& value, const std::string& place,
                                std::vector<std::int64_t>& deltas) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<std::uint64_t>() <=
                         static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (!fits) return invalid_argument(place + ": expected an integer of 64 bits");
  deltas.push_back(value.get<std::int64_t>());
  return std::nullopt;
}

std::optional<Error> read_segment(const Json& value, const std::string& place,
                                  std::vector<SegmentObservation>& segments) {
  FieldReader reader(value, place + ".");
  SegmentObservation observation;
  const std::string kind = reader.text("kind");
  if (const auto known = segment_kind(kind)) {
    observation.key.kind = *known;
  } else {
    reader.fail("kind", "'" + kind +
                            "', expected gap, forward, head, backward, epilogue, "
                            "optimizer or recompute");
  }
  observation.key.layer_class = static_cast<std::uint16_t>(reader.integer("class", 0, kMost16));
  observation.key.mode = reader.mode("mode");
  observation.key.variant = static_cast<std::uint8_t>(reader.integer("variant", 0, kMost8));
  observation.layer = static_cast<std::int32_t>(
      reader.integer("layer", -1, std::numeric_limits<std::int32_t>::max()));
  SegmentSample& sample = observation.sample;
  sample.net_bytes = reader.integer("net_bytes", kLeast64);
  sample.peak_bytes = reader.integer("peak_bytes", 0);
  if (sample.peak_bytes < sample.net_bytes) reader.fail("peak_bytes", "below net_bytes");
  sample.seconds = reader.number("seconds");
  if (reader.has("deltas")) {
    reader.each("deltas", [&sample](const Json& delta, const std::string& at) {
      return read_delta(delta, at, sample.deltas);
    });
  }
  if (reader.has("released_bytes")) {
    observation.released_bytes = reader.integer("released_bytes", 0);
  }
  segments.push_back(std::move(observation));
  return error_of(reader);
}

ShapeKey read_key(FieldReader& reader) {
  const std::string text = reader.text("key");
  if (!reader.ok()) return {};
  const auto key = ShapeKey::parse(text);
  if (key) return *key;
  reader.fail("key", key.error().message);
  return {};
}

std::optional<Error> read_shape(const Json& text, const std::string& at,
                                std::vector<ShapeKey>& shapes) {
  if (!text.is_string()) return invalid_argument(at + ": expected a string");
  const auto shape = ShapeKey::parse(text.get<std::string>());
  if (!shape) return invalid_argument(at + ": " + shape.error().message);
  if (shapes.size() >= kMostStrangeShapes) return invalid_argument(at + ": too many");
  shapes.push_back(*shape);
  return std::nullopt;
}

std::optional<Error> read_promises(FieldReader& reader, const std::string& at,
                                   StepStructure::Menu& menu) {
  menu.shape = read_key(reader);
  reader.each("promises", [&menu](const Json& promise, const std::string& place) {
    FieldReader fields(promise, place + ".");
    menu.promises.push_back(
        {fields.integer("freed_bytes", 0, kMostFreed), fields.number("work_share")});
    return error_of(fields);
  });
  if (!reader.ok()) return std::nullopt;
  for (const StepStructure::Menu::Promise& promise : menu.promises) {
    if (promise.work_share > 1) return invalid_argument(at + ".promises: a work_share above 1");
  }
  if (menu.promises.size() == menu.steps.size()) return std::nullopt;
  return invalid_argument(at + ".promises: " + std::to_string(menu.promises.size()) +
                          ", expected as many as steps: " + std::to_string(menu.steps.size()));
}

std::optional<Error> read_structure(const Json& value, const std::string& place,
                                    StepStructure& structure) {
  FieldReader reader(value, place);
  reader.each("classes", [&](const Json& name, const std::string& at) -> std::optional<Error> {
    if (!name.is_string()) return invalid_argument(at + ": expected a string");
    structure.class_names.push_back(name.get<std::string>());
    return std::nullopt;
  });
  reader.each("layers", [&](const Json& layer, const std::string& at) -> std::optional<Error> {
    FieldReader fields(layer, at + ".");
    structure.layers.push_back({static_cast<std::uint16_t>(fields.integer("class", 0, kMost16)),
                                static_cast<std::uint8_t>(fields.integer("variant", 0, kMost8)),
                                fields.has("apart") && fields.boolean("apart")});
    return error_of(fields);
  });
  if (!reader.has("menus")) return error_of(reader);
  reader.each("menus", [&](const Json& value_of_menu, const std::string& at) {
    FieldReader fields(value_of_menu, at + ".");
    StepStructure::Menu menu;
    menu.id = fields.identifier("menu_id");
    fields.each("steps", [&](const Json& step, const std::string& where) -> std::optional<Error> {
      if (!step.is_string()) return invalid_argument(where + ": expected a string");
      menu.steps.push_back(step.get<std::string>());
      return std::nullopt;
    });
    if (fields.has("promises")) {
      if (auto error = read_promises(fields, at, menu)) return error;
    }
    if (fields.has("not_at")) {
      fields.each("not_at", [&menu](const Json& text, const std::string& where) {
        return read_shape(text, where, menu.not_at);
      });
    }
    structure.menus.push_back(std::move(menu));
    return error_of(fields);
  });
  return error_of(reader);
}

std::optional<Error> read_profiles(const Json& value, StepProfiles& profiles) {
  FieldReader reader(value, "profiles.");
  profiles.base_bytes = Bytes(reader.integer("base_bytes"));
  profiles.gradients_present = reader.boolean("gradients_present");
  if (reader.has("casts_present")) profiles.casts_present = reader.boolean("casts_present");
  if (const Json* const structure = reader.object("structure")) {
    const auto error = read_structure(*structure, "profiles.structure.", profiles.structure);
    if (error) reader.fail_with(*error);
  }
  reader.each("segments", [&profiles](const Json& segment, const std::string& at) {
    return read_segment(segment, at, profiles.segments);
  });
  return error_of(reader);
}

void check_schema(FieldReader& reader) {
  const std::string schema = reader.text("schema");
  if (reader.ok() && schema != kStepSchema) {
    reader.fail("schema", "'" + schema + "', expected '" + std::string(kStepSchema) + "'");
  }
}

std::optional<Error> read_allocator(const Json& object, AllocatorPeaks& out) {
  FieldReader reader(object, "allocator.");
  out.active_bytes = Bytes(reader.integer("active_bytes"));
  out.reserved_bytes = Bytes(reader.integer("reserved_bytes"));
  out.gap_bytes = Bytes(reader.integer("gap_bytes"));
  if (reader.ok()) return std::nullopt;
  return reader.error();
}

}  // namespace

Result<StepRecord> inspect::read_step_record(const Json& root) {
  FieldReader reader(root, "");
  check_schema(reader);
  StepRecord record;
  record.run = reader.text("run");
  record.step = reader.identifier("step");
  record.key = read_key(reader);
  if (const Json* const id = reader.object("plan_id"); id != nullptr && !id->is_null()) {
    record.plan_id = reader.identifier("plan_id");
  }
  reader.each("modes", [&record](const Json& mode, const std::string& at) -> std::optional<Error> {
    const auto parsed =
        parse_mode(mode.is_string() ? mode.get<std::string>() : inspect::dump(mode, -1));
    if (!parsed) return parsed.error().with_context(at);
    record.modes.push_back(*parsed);
    return std::nullopt;
  });
  if (const auto predicted = reader.integer_or_null("predicted_bytes")) {
    record.predicted_bytes = Bytes(*predicted);
  }
  record.measured_bytes = Bytes(reader.integer("measured_bytes"));
  record.budget_bytes = Bytes(reader.integer("budget_bytes"));
  record.seconds = reader.number("seconds");
  if (reader.has("recompute_seconds")) {
    record.recompute_seconds = reader.number("recompute_seconds");
  }
  record.revocations = reader.integer("revocations");
  record.overrun = reader.boolean("overrun");
  if (reader.has("base_bytes")) record.base_bytes = Bytes(reader.integer("base_bytes"));
  if (reader.has("gradients_present")) {
    record.gradients_present = reader.boolean("gradients_present");
  }
  if (reader.has("casts_present")) record.casts_present = reader.boolean("casts_present");
  if (reader.has("ran_free")) record.ran_free = reader.boolean("ran_free");
  if (reader.has("host_peak_bytes")) {
    record.host_peak_bytes = Bytes(reader.integer("host_peak_bytes"));
  }
  if (reader.ok() && reader.has("allocator")) {
    const auto error = read_allocator(*reader.object("allocator"), record.allocator.emplace());
    if (error) reader.fail_with(*error);
  }
  if (reader.ok() && reader.has("profiles")) {
    record.profiles.emplace();
    const auto error = read_profiles(*reader.object("profiles"), *record.profiles);
    if (error) reader.fail_with(*error);
  }
  if (!reader.ok()) return reader.error().with_context("step record");
  return record;
}

Result<StepRecord> parse_step_record(std::string_view line) {
  try {
    return inspect::read_step_record(inspect::parse(line));
  } catch (const Json::exception& error) {
    return invalid_argument("step record: " + inspect::plain_message(error));
  }
}

}  // namespace pudica
