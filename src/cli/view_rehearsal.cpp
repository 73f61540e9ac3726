#include "cli/view_rehearsal.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <ostream>
#include <vector>

#include <fmt/format.h>

#include "cli/format.h"
#include "cli/table.h"

namespace pudica::cli {
namespace {

std::string bytes_at(const Json& answer, std::string_view path) {
  return bytes_text(integer(answer, path));
}

std::string yes_or_no(const Json& value) {
  if (!value.is_boolean()) return "unknown";
  return value.get<bool>() ? "fits" : "does not fit";
}

// "out of memory in step 3 (batch=8,length=512)".
std::string death_text(const Json& death, const Style& style) {
  const auto step = integer(death, "step").value_or(0);
  if (step == 0) return "out of memory before the first step";
  const std::string shape = sanitised(text(death, "shape"), style);
  return fmt::format("out of memory {} step {}{}", shape.empty() ? "after" : "in", step,
                     shape.empty() ? "" : " (" + shape + ")");
}

// "31.2 % more FLOPs".
std::string work_text(const std::optional<double>& share) {
  constexpr double kPercent = 100;
  return share ? fmt::format("{:.1f} % more FLOPs", kPercent * *share) : "unknown";
}

std::string held_text(const Json& death) {
  return fmt::format(
      "{} parameters, {} gradients, {} optimizer, {} activations and the rest; {} more asked for",
      bytes_at(death, "held.parameters"), bytes_at(death, "held.gradients"),
      bytes_at(death, "held.optimizer"), bytes_at(death, "held.activations_and_rest"),
      bytes_at(death, "requested_bytes"));
}

bool has_doubt(const Json& answer, std::string_view kind) {
  return std::ranges::any_of(list(answer, "doubts"),
                             [kind](const Json& doubt) { return text(doubt, "kind") == kind; });
}

// "fits", "fits, unless ...", "does not fit: why".
std::string verdict(const Json& answer, const char* which, const char* death, const Style& style) {
  const std::string of_memory =
      answer[death].is_object() ? ": " + death_text(answer[death], style) : std::string();
  if (!is_true(answer, which)) {
    const auto overruns = integer(answer, "overruns").value_or(0);
    return "does not fit" + (of_memory.empty() && overruns > 0
                                 ? fmt::format(": {} steps over the budget", overruns)
                                 : of_memory);
  }
  return has_doubt(answer, "read")
             ? "fits, unless the values that are read decide otherwise (below)"
             : "fits";
}

// "133.3 GiB in fixed ones, 26.2 % of it not in use (measured)".
std::string segments_text(const char* kind, const Json& peak) {
  constexpr double kPercent = 100;
  const auto reserved = number(peak, "reserved_bytes").value_or(0);
  const auto allocated = number(peak, "allocated_bytes").value_or(0);
  const double spared = reserved > 0 ? kPercent * (1 - allocated / reserved) : 0;
  return fmt::format("{} in {} ones, {:.1f} % of it not in use (measured)",
                     bytes_at(peak, "reserved_bytes"), kind, spared);
}

void add_segments(const Json& segments, Facts& facts) {
  if (!segments.is_object()) return;
  const std::string advice = text(segments, "advice");
  const std::string setting = std::string("PYTORCH_ALLOC_CONF=expandable_segments:") +
                              (advice == "expandable" ? "True" : "False");
  facts.emplace_back("Segments",
                     advice == "either" ? "leave torch's allocator as it is" : "use " + setting);
  for (const char* const kind : {"fixed", "expandable"}) {
    if (segments[kind].is_object()) {
      facts.emplace_back("  reserves", segments_text(kind, segments[kind]));
    }
  }
}

Facts facts_of(const Json& answer, const Style& style) {
  std::string command;
  for (const Json& word : list(answer, "command")) {
    if (word.is_string()) command += (command.empty() ? "" : " ") + word.get<std::string>();
  }
  Facts facts{
      {"Rehearsed", sanitised(command, style)},
      {"On", fmt::format("{} with {}, {} of it taken by the context (about); torch {}",
                         text(answer, "card"), bytes_at(answer, "memory_bytes"),
                         bytes_at(answer, "context_bytes"), text(answer, "torch"))},
      {"Steps", fmt::format("{}", integer(answer, "steps").value_or(0))},
      {"As it is", verdict(answer, "fits_as_is", "dies_as_is", style)},
  };
  if (find(answer, "dies_as_is.held") != nullptr) {
    facts.emplace_back("  held then", held_text(answer["dies_as_is"]));
  }
  facts.emplace_back("  needs", bytes_at(answer, "keep_all_peak.allocated_bytes") + " allocated, " +
                                    bytes_at(answer, "keep_all_peak.reserved_bytes") +
                                    " reserved (measured)");
  if (has_doubt(answer, "unattached")) {
    facts.emplace_back("With a plan", "there is none: pudica attached to nothing");
    add_segments(answer["segments"], facts);
    return facts;
  }
  facts.emplace_back("With a plan", verdict(answer, "fits_with_plan", "dies_with_plan", style));
  facts.emplace_back("  budget", bytes_at(answer, "budget_bytes"));
  if (answer["planned_peak"].is_object()) {
    facts.emplace_back(
        "  needs", bytes_at(answer, "planned_peak.allocated_bytes") + " allocated, " +
                       bytes_at(answer, "planned_peak.reserved_bytes") + " reserved (measured)");
  }
  facts.emplace_back("  costs", work_text(number(answer, "plan_extra_flops_share")) +
                                    " over all steps, what it learns by included (counted)");
  facts.emplace_back("  at least", bytes_at(answer, "floor_peak.allocated_bytes") +
                                       " allocated at the longest batch (predicted)");
  facts.emplace_back("Every layer", "recomputed, as gradient_checkpointing=True does it");
  facts.emplace_back("  needs", bytes_at(answer, "checkpointing.peak_bytes") +
                                    " allocated at the longest batch (predicted)");
  facts.emplace_back("  costs", work_text(number(answer, "checkpointing.extra_flops_share")) +
                                    " over all steps (counted)");
  add_segments(answer["segments"], facts);
  if (const std::string learned = text(answer, "learned"); !learned.empty()) {
    facts.emplace_back("Learned", sanitised(learned, style));
  }
  return facts;
}

void print_shapes(std::ostream& out, const Json& answer, const Style& style) {
  Table table({{"BATCH"}, {"SHAPE", false, true}, {"ALL KEPT", true}, {"AT LEAST", true}});
  for (const char* const name : {"longest", "median", "shortest"}) {
    const Json& shape = answer[name];
    if (!shape.is_object()) continue;
    table.add({{name},
               {sanitised(text(shape, "shape"), style)},
               {bytes_at(shape, "keep_all_peak_bytes")},
               {bytes_at(shape, "floor_peak_bytes")}});
  }
  if (table.rows() == 0) return;
  out << "\nPredicted peaks of bytes allocated, attached:\n";
  table.print(out, style);
}

void print_cards(std::ostream& out, const Json& answer, const Style& style) {
  Table table({{"CARD"}, {"MEMORY", true}, {"AS IT IS"}, {"WITH A PLAN"}, {"EXTRA TIME", true}});
  for (const Json& card : list(answer, "cards")) {
    const auto extra = number(card, "extra_seconds");
    table.add({{text(card, "card")},
               {bytes_at(card, "memory_bytes")},
               {yes_or_no(card["fits_as_is"])},
               {yes_or_no(card["fits_with_plan"])},
               {duration_text(extra)}});
  }
  out << "\nThe longest batch on other cards, predicted, plans under 0.9 of what a process gets of "
         "each:\n";
  table.print(out, style);
  if (const auto seconds = number(answer, "step_seconds")) {
    out << "Times are estimates by the card's published rates, none is measured; a step of the "
           "longest batch is "
        << duration_text(*seconds) << " by them.\n";
  }
}

std::string upper(std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::toupper(c); });
  return word;
}

// "61"; "at least 128" where nobody looked further.
std::string size_text(const Json& sizes, const char* which, const Json& searched) {
  const auto size = integer(sizes, which);
  if (!size) return kNothing;
  const bool open = size == integer(searched, "searched_up_to");
  return (open ? "at least " : "") + std::to_string(*size);
}

// "batch 16, length 16 to 248".
std::string seen_text(const Json& largest, const Style& style) {
  std::string out;
  for (const auto& [name, searched] : largest.items()) {
    const Json& seen = list(searched, "seen");
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", sanitised(name, style), dump(seen[0]));
    if (seen[0] != seen[1]) out += " to " + dump(seen[1]);
  }
  return out;
}

void print_largest(std::ostream& out, const Json& answer, const Style& style) {
  const Json& largest = answer["largest"];
  if (largest.empty()) return;
  std::vector<Column> columns{{"CARD"}};
  int rank = 0;
  for (const auto& [name, searched] : largest.items()) {
    columns.push_back({upper(sanitised(name, style)), true, false, rank});
    columns.push_back({"WITH A PLAN", true, false, rank++});
  }
  Table table(std::move(columns));
  const auto add = [&](std::string card, const Json& sizes) {
    std::vector<Cell> row{{std::move(card)}};
    for (const auto& [name, searched] : largest.items()) {
      const Json* const own = find(sizes, name);
      for (const char* const which : {"as_is", "with_plan"}) {
        row.push_back({own ? size_text(*own, which, searched) : kNothing});
      }
    }
    table.add(std::move(row));
  };
  add("this one", largest);
  for (const Json& card : list(answer, "cards")) add(text(card, "card"), card["largest"]);
  out << "\nThe largest sizes that fit, each with the others as in the longest batch, predicted:\n";
  table.print(out, style);
  out << "The run saw " << seen_text(largest, style)
      << ": beyond that, and in a batch that never varied, these are extrapolations.\n";
}

void print_doubts(std::ostream& out, const Json& answer, const Style& style) {
  if (list(answer, "doubts").empty()) return;
  out << "\nWhat this cannot know:\n";
  for (const Json& doubt : list(answer, "doubts")) {
    std::string where;
    if (const std::string file = text(doubt, "file"); !file.empty()) {
      where = fmt::format("{}:{} ({} times): `{}`: ", sanitised(file, style),
                          integer(doubt, "line").value_or(0), integer(doubt, "count").value_or(0),
                          sanitised(text(doubt, "code"), style));
    } else if (const auto count = integer(doubt, "count")) {
      where = fmt::format("{} times: ", *count);
    }
    out << "- " << where << sanitised(text(doubt, "text"), style) << '\n';
  }
}

}  // namespace

void print_rehearsal(std::ostream& out, const Json& answer, const Style& style) {
  print_facts(out, facts_of(answer, style), style);
  print_shapes(out, answer, style);
  print_cards(out, answer, style);
  print_largest(out, answer, style);
  print_doubts(out, answer, style);
}

}  // namespace pudica::cli
