#include "cli/table.h"

#include <algorithm>
#include <numeric>
#include <ostream>
#include <utility>

namespace pudica::cli {
namespace {

constexpr std::size_t kGap = 2;            // between columns
constexpr std::size_t kLeastWidth = 8;     // of a column that shrinks
constexpr std::size_t kLeastWrapped = 24;  // of one that wraps: beyond that others go first

std::size_t width_of(const Cell& cell) {
  return cell.drawn ? cell.columns : display_width(cell.text);
}

std::size_t total(const std::vector<std::size_t>& widths, const std::vector<bool>& shown) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (shown[i]) sum += widths[i] + kGap;
  }
  return sum < kGap ? 0 : sum - kGap;
}

std::size_t least_width(const Column& column) { return column.wraps ? kLeastWrapped : kLeastWidth; }

// Shrinks what may shrink, the widest first; then leaves out columns by rank.
std::vector<bool> fit(const std::vector<Column>& columns, std::size_t limit,
                      std::vector<std::size_t>& widths) {
  std::vector<bool> shown(columns.size(), true);
  for (;;) {
    std::size_t excess = total(widths, shown);
    excess = excess > limit ? excess - limit : 0;
    if (excess == 0) return shown;
    std::size_t widest = columns.size();
    std::size_t last = columns.size();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (!shown[i]) continue;
      const bool can = columns[i].shrinks && widths[i] > least_width(columns[i]);
      if (can && (widest == columns.size() || widths[i] > widths[widest])) widest = i;
      if (columns[i].rank > 0 &&
          (last == columns.size() || columns[i].rank >= columns[last].rank)) {
        last = i;
      }
    }
    if (widest < columns.size()) {
      widths[widest] =
          std::max(least_width(columns[widest]), widths[widest] - std::min(excess, widths[widest]));
    } else if (last < columns.size()) {
      shown[last] = false;
    } else {
      return shown;
    }
  }
}

// Of the word, what goes in `width` columns, at least one character.
std::size_t fitting_bytes(const std::string& word, std::size_t width) {
  const auto is_first_byte = [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  };
  std::size_t end = 0;
  std::size_t columns = 0;
  while (end < word.size()) {
    std::size_t next = end + 1;
    while (next < word.size() && !is_first_byte(word[next])) ++next;
    columns += display_width(std::string_view(word).substr(end, next - end));
    if (columns > width && end > 0) break;
    end = next;
  }
  return end;
}

// The text in lines of at most `width` columns, broken at spaces where there are any.
std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  std::size_t used = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t space = std::min(text.find(' ', at), text.size());
    std::string word = text.substr(at, space - at);
    if (used > 0 && used + 1 + display_width(word) > width) {
      lines.emplace_back();
      used = 0;
    }
    if (used > 0) lines.back() += ' ';
    used += used > 0 ? 1 : 0;
    while (display_width(word) > width) {
      const std::size_t bytes = fitting_bytes(word, width);
      lines.back() += word.substr(0, bytes);
      lines.emplace_back();
      word.erase(0, bytes);
    }
    lines.back() += word;
    used += display_width(word);
    at = space + 1;
  }
  return lines;
}

std::string padded(const std::string& text, std::size_t used, std::size_t width, bool right) {
  const std::string space(width > used ? width - used : 0, ' ');
  return right ? space + text : text + space;
}

}  // namespace

std::string field_text(const Json* value) {
  if (value == nullptr || value->is_null()) return "-";
  if (value->is_string()) {
    const std::string text = sanitised(value->get<std::string>(), Style{});
    return text.empty() ? "-" : text;
  }
  if (!value->is_array()) return sanitised(dump(*value), Style{});
  std::string joined;
  for (const Json& element : *value) joined += (joined.empty() ? "" : ",") + field_text(&element);
  return joined.empty() ? "-" : joined;
}

void Table::add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }

void Table::print(std::ostream& out, const Style& style) const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.title));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  const std::vector<bool> shown = fit(columns_, style.width, widths);
  const auto line = [&](const std::vector<Cell>& row) {
    std::string text;
    std::size_t gap = 0;
    std::size_t before = 0;  // columns in front of the cell
    std::vector<std::string> more;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!shown[i]) continue;
      text.append(gap, ' ');
      before += gap;
      std::string content = row[i].text;
      if (columns_[i].wraps) {
        more = wrapped(content, widths[i]);
        content = more.front();
        more.erase(more.begin());
      } else if (!row[i].drawn) {
        content = clipped(content, widths[i], style);
      }
      const std::size_t used = row[i].drawn ? row[i].columns : display_width(content);
      text += padded(painted(content, row[i].colour, style), used, widths[i], columns_[i].right);
      gap = kGap;
      if (more.empty()) before += widths[i];
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out << text << '\n';
    for (const std::string& rest : more) out << std::string(before, ' ') << rest << '\n';
  };
  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.push_back({column.title, Colour::kBold});
  line(titles);
  for (const auto& row : rows_) line(row);
}

void print_facts(std::ostream& out, const Facts& facts, const Style& style) {
  std::size_t width = 0;
  for (const auto& fact : facts) width = std::max(width, display_width(fact.first));
  for (const auto& [name, value] : facts) {
    out << painted(name, Colour::kDim, style)
        << std::string(width - display_width(name) + kGap, ' ') << value << '\n';
  }
}

void print_fields(std::ostream& out, const std::vector<std::string>& fields,
                  const std::vector<const Json*>& objects) {
  for (std::size_t i = 0; i < fields.size(); ++i) out << (i == 0 ? "" : "\t") << fields[i];
  out << '\n';
  for (const Json* const object : objects) {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      out << (i == 0 ? "" : "\t") << field_text(find(*object, fields[i]));
    }
    out << '\n';
  }
}

}  // namespace pudica::cli
