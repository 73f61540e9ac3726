// Tables: aligned columns for people on a terminal, tab-separated fields for programs.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

#include "cli/json_view.h"
#include "cli/terminal.h"

namespace pudica::cli {

struct Cell {
  std::string text;  // safe to show
  Colour colour = Colour::kNone;
  bool drawn = false;       // holds escape sequences of its own
  std::size_t columns = 0;  // of drawn text
};

struct Column {
  std::string title;
  bool right = false;    // aligned to the right: numbers
  bool shrinks = false;  // may be clipped where the terminal is narrow
  int rank = 0;          // where that is not enough the columns of highest rank go; 0 stays
  bool wraps = false;    // what does not fit goes on below: nothing of it is cut. The last column.
};

// Thread-safe: a value.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Requires: as many cells as columns.
  void add(std::vector<Cell> row);
  // Lines no wider than style.width, as far as columns may shrink or go.
  void print(std::ostream& out, const Style& style) const;
  [[nodiscard]] std::size_t rows() const { return rows_.size(); }

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// "Name   value" lines, the values of several lines' names aligned.
using Facts = std::vector<std::pair<std::string, std::string>>;
void print_facts(std::ostream& out, const Facts& facts, const Style& style);

// A value of the tab-separated output; nullptr: "-".
std::string field_text(const Json* value);

// A header line and one line an object, separated by tabs; `fields` name what of each object, with
// points between levels ("cache.hits"). Null and absent: "-". A list: its elements with commas.
void print_fields(std::ostream& out, const std::vector<std::string>& fields,
                  const std::vector<const Json*>& objects);

}  // namespace pudica::cli
