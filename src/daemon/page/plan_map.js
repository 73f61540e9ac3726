// The plan map: a column a plan, shorter shapes left; a row a layer. Colour, hatching and, where
// there is room, a letter tell the mode. A canvas, since 512 plans of 48 layers are 24,576 cells;
// one element stands for the cell that the keyboard or the pointer is on.

import { h, setAttribute, setHidden, setStyle, setText } from "./dom.js";
import { Explanations } from "./explanations.js";
import { bytes, compareKeys, dimensions, seconds, shape, varying } from "./format.js";
import { drawCell, kModes, legendSwatch, palette } from "./plan_map_paint.js";

const kPeakHeight = 46;
const kAxisHeight = 22;
const kGap = 10;  // between the peaks and the cells

export class PlanMap {
  constructor() {
    this.plans = [];
    this.layers = 0;
    this.cursor = { column: 0, row: 0 };
    this.seen = "";
    this.explanations = new Explanations(() => this.tell());
    this.build();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.scroller);
    this.onTheme = () => this.draw();
    document.addEventListener("pudica-theme", this.onTheme);
  }

  build() {
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.labels = h("canvas", { class: "map-labels", "aria-hidden": "true" });
    this.marker = h("span", { class: "map-marker", "aria-hidden": "true" });
    this.cell = h("div", { role: "gridcell", id: "map-cell", class: "map-cell" });
    this.rowElement = h("div", { role: "row" }, this.cell);
    this.grid = h("div", {
      class: "map-grid", role: "grid", tabindex: "0", "aria-label": "Plan map",
      "aria-activedescendant": "map-cell", "aria-describedby": "map-help",
      on: {
        keydown: (event) => this.key(event),
        focus: () => this.show(true),
        blur: () => this.hide(),
        pointermove: (event) => this.point(event),
        pointerdown: (event) => this.point(event),
        pointerleave: () => { if (document.activeElement !== this.grid) this.hide(); },
      },
    }, this.canvas, this.marker, this.rowElement);
    this.scroller = h("div", { class: "map-scroll", on: { scroll: () => this.hide() } }, this.grid);
    this.tip = h("div", { class: "map-tip", "aria-hidden": "true" });
    this.spoken = h("p", { class: "unseen", role: "status", "aria-live": "polite" });
    this.swatches = h("ul", { class: "legend" });
    this.legend = kModes.map((mode) => legendSwatch(mode));
    for (const entry of this.legend) this.swatches.append(entry.element);
    this.help = h("p", { class: "note", id: "map-help" },
      "Arrow keys move from cell to cell. The strip on top: predicted peak against the budget.");
    this.none = h("p", { class: "none" }, "No plan yet: the run is still learning.");
    this.frame = h("div", { class: "map-frame" }, this.labels, this.scroller);
    this.element = h("figure", { class: "map" },
      this.swatches, this.frame, this.none, this.help, this.tip, this.spoken);
    this.tip.hidden = true;
  }

  update(plans, run) {
    const usable = plans.filter((entry) => Array.isArray(entry.plan?.modes));
    usable.sort((a, b) => compareKeys(a.key, b.key) || a.plan.id - b.plan.id);
    const structure = run.structure?.layers ?? [];
    const seen = JSON.stringify([
      usable.map((entry) => [entry.plan.id, entry.predicted_peak_bytes]), structure.length,
      run.budget_bytes,
    ]);
    this.run = run;
    this.follow(usable);
    if (seen === this.seen) {
      this.mark();
      return;
    }
    this.seen = seen;
    this.explanations.keep(usable, run.budget_bytes);
    this.layers = Math.max(structure.length, ...usable.map((entry) => entry.plan.modes.length), 0);
    setHidden(this.frame, usable.length === 0);
    setHidden(this.help, usable.length === 0);
    setHidden(this.none, usable.length > 0);
    this.axis = varying(usable.map((entry) => entry.key));
    this.cursor.column = Math.min(this.cursor.column, Math.max(0, usable.length - 1));
    this.cursor.row = Math.min(this.cursor.row, Math.max(0, this.layers - 1));
    setAttribute(this.grid, "aria-rowcount", this.layers);
    setAttribute(this.grid, "aria-colcount", usable.length);
    this.draw();
    this.tell();
  }

  // The cell that is looked at stays that of its plan, wherever its column is now.
  follow(plans) {
    const before = this.plans[this.cursor.column];
    this.plans = plans;
    if (!before) return;
    const now = plans.findIndex((entry) => (
      entry.plan.id === before.plan.id && entry.key === before.key));
    if (now >= 0) this.cursor.column = now;
  }

  layout() {
    const width = this.scroller.clientWidth;
    const count = Math.max(1, this.plans.length);
    const column = Math.max(4, Math.min(44, Math.floor(width / count)));
    const row = Math.max(7, Math.min(24, Math.floor(360 / Math.max(1, this.layers))));
    const top = kPeakHeight + kGap;
    const height = top + row * this.layers + kAxisHeight;
    return { column, row, top, width: column * count, height };
  }

  draw() {
    if (this.plans.length === 0 || this.layers === 0 || this.scroller.clientWidth === 0) return;
    const colours = palette();
    for (const entry of this.legend) entry.draw(colours);
    this.at = this.layout();
    this.roomy = this.at.column >= 15 && this.at.row >= 13;
    const context = sized(this.canvas, this.at.width, this.at.height);
    this.drawPeaks(context, colours);
    this.plans.forEach((entry, column) => this.drawColumn(context, colours, entry, column));
    this.drawAxis(context, colours);
    this.drawLabels(colours);
    this.mark();
    if (!this.cell.hidden && !this.tip.hidden) this.place();
  }

  drawPeaks(context, colours) {
    const budget = this.run.budget_bytes || 0;
    const peaks = this.plans.map((entry) => entry.predicted_peak_bytes ?? 0);
    const most = Math.max(budget, ...peaks, 1);
    peaks.forEach((peak, column) => {
      const height = Math.max(1, peak / most * (kPeakHeight - 4));
      context.fillStyle = budget > 0 && peak > budget ? colours.budget : colours.base;
      const gap = this.at.column >= 8 ? 1 : 0;
      context.fillRect(column * this.at.column, kPeakHeight - height, this.at.column - gap, height);
    });
    if (budget > 0) {
      context.fillStyle = colours.budget;
      const y = Math.round(kPeakHeight - budget / most * (kPeakHeight - 4));
      context.fillRect(0, y - 1, this.at.width, 1.5);
    }
  }

  // Where cells have no room for a gap, neighbours of one mode are painted at once.
  drawColumn(context, colours, entry, column) {
    const gap = this.at.column >= 8 && this.at.row >= 8 ? 1 : 0;
    for (let row = 0; row < this.layers;) {
      const mode = this.modeOf(entry, row);
      let end = row + 1;
      while (gap === 0 && end < this.layers && this.modeOf(entry, end) === mode) end += 1;
      drawCell(context, colours, {
        x: column * this.at.column, y: this.at.top + row * this.at.row,
        width: this.at.column - gap, height: (end - row) * this.at.row - gap, mode,
      }, this.roomy);
      row = end;
    }
  }

  // Points at the plan of the last step; it moves at each step, so it is no part of the canvas.
  mark() {
    const current = this.plans.findIndex((entry) => entry.plan.id === this.run.last?.plan_id);
    setHidden(this.marker, current < 0 || !this.at);
    if (this.marker.hidden) return;
    setStyle(this.marker, "left", `${(current + 0.5) * this.at.column}px`);
    setStyle(this.marker, "top", `${kPeakHeight + 1}px`);
  }

  drawAxis(context, colours) {
    context.fillStyle = colours.inkSoft;
    context.font = `11px ${colours.sans}`;
    context.textBaseline = "top";
    const y = this.at.top + this.layers * this.at.row + 6;
    let free = 0;
    this.plans.forEach((entry, column) => {
      const text = this.axis
        ? String(dimensions(entry.key)[this.axis.index].value) : shape(entry.key);
      const width = context.measureText(text).width;
      const x = Math.min(this.at.width - width,
        Math.max(0, column * this.at.column + (this.at.column - width) / 2));
      if (x < free) return;
      context.fillText(text, x, y);
      free = x + width + 10;
    });
  }

  drawLabels(colours) {
    const names = this.run.structure?.classes ?? [];
    const layers = this.run.structure?.layers ?? [];
    const context = sized(this.labels, 44, this.at.height);
    context.font = `11px ${colours.sans}`;
    context.fillStyle = colours.inkSoft;
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillText("peak", 36, kPeakHeight / 2);
    const every = Math.ceil(14 / this.at.row);
    for (let row = 0; row < this.layers; row += every) {
      context.fillText(String(row), 36, this.at.top + row * this.at.row + this.at.row / 2);
    }
    context.fillText(this.axis?.name.slice(0, 7) ?? "shape", 36, this.at.height - 11);
    context.fillStyle = colours.lineStrong;
    let begin = 0;
    for (let row = 1; row <= this.layers && names.length > 1; row += 1) {
      if (row < this.layers && layers[row]?.class === layers[begin]?.class) continue;
      context.fillRect(41, this.at.top + begin * this.at.row, 2, (row - begin) * this.at.row - 2);
      begin = row;
    }
  }

  modeOf(entry, row) {
    return entry.plan.modes[row] ?? entry.plan.default_mode ?? "keep";
  }

  key(event) {
    const { column, row } = this.cursor;
    const lastColumn = this.plans.length - 1;
    const lastRow = this.layers - 1;
    const targets = {
      ArrowRight: [column + 1, row],
      ArrowLeft: [column - 1, row],
      ArrowDown: [column, row + 1],
      ArrowUp: [column, row - 1],
      Home: event.ctrlKey ? [0, 0] : [0, row],
      End: event.ctrlKey ? [lastColumn, lastRow] : [lastColumn, row],
      PageDown: [column + 10, row],
      PageUp: [column - 10, row],
    };
    if (event.key === "Escape") this.hide();
    const target = targets[event.key];
    if (!target || this.plans.length === 0) return;
    event.preventDefault();
    this.cursor = {
      column: Math.max(0, Math.min(lastColumn, target[0])),
      row: Math.max(0, Math.min(lastRow, target[1])),
    };
    this.show(true);
  }

  point(event) {
    if (!this.at) return;
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.at.column);
    const row = Math.floor((event.clientY - box.top - this.at.top) / this.at.row);
    if (column < 0 || column >= this.plans.length || row < 0 || row >= this.layers) return;
    if (!this.tip.hidden && column === this.cursor.column && row === this.cursor.row) return;
    this.cursor = { column, row };
    this.show(false);
  }

  show(byKeyboard) {
    if (!this.plans[this.cursor.column] || !this.at) return;
    setHidden(this.tip, false);
    setAttribute(this.cell, "data-shown", "true");
    this.speaks = byKeyboard;
    if (byKeyboard) this.scrollToCursor();
    this.tell();
  }

  // What is known of the cell that is shown; again when its reason has come.
  tell() {
    const entry = this.plans[this.cursor.column];
    if (this.tip.hidden || !entry) return;
    const lines = this.describe(entry, this.cursor.row);
    this.tip.replaceChildren(h("strong", null, lines[0]),
      ...lines.slice(1).map((line) => h("span", null, line)));
    setText(this.cell, lines.join(". "));
    setAttribute(this.cell, "aria-colindex", this.cursor.column + 1);
    setAttribute(this.rowElement, "aria-rowindex", this.cursor.row + 1);
    if (this.speaks) setText(this.spoken, lines.join(". "));
    this.place();
  }

  hide() {
    setHidden(this.tip, true);
    setAttribute(this.cell, "data-shown", null);
  }

  describe(entry, row) {
    const mode = this.modeOf(entry, row);
    const layer = this.run.structure?.layers?.[row];
    const name = this.run.structure?.classes?.[layer?.class];
    const joined = entry.plan.joined?.[row] ? ", together with the layer before it" : "";
    const why = this.explanations.why(this.run, entry, row, mode);
    const reason = why?.pending ? "asking why" : why?.text ?? entry.reason ?? entry.plan.reason;
    const lines = [
      `${shape(entry.key)}, layer ${row}${name ? ` (${name})` : ""}: ${mode}${joined}`,
      reason ?? "",
      `Predicted peak ${bytes(entry.predicted_peak_bytes)}, measured ` +
        `${bytes(entry.measured_peak_bytes)}`,
    ];
    if (entry.plan.predicted_extra_seconds > 0) {
      lines.push(`Recomputing costs ${seconds(entry.plan.predicted_extra_seconds)} a step`);
    }
    return lines.filter((line) => line !== "");
  }

  scrollToCursor() {
    const left = this.cursor.column * this.at.column;
    const view = this.scroller;
    // Directly: smooth scrolling would hide what is pointed at.
    if (left < view.scrollLeft) view.scrollLeft = left;
    const right = left + this.at.column;
    if (right > view.scrollLeft + view.clientWidth) view.scrollLeft = right - view.clientWidth;
  }

  place() {
    const x = this.cursor.column * this.at.column;
    const y = this.at.top + this.cursor.row * this.at.row;
    setStyle(this.cell, "left", `${x}px`);
    setStyle(this.cell, "top", `${y}px`);
    setStyle(this.cell, "width", `${this.at.column}px`);
    setStyle(this.cell, "height", `${this.at.row}px`);
    const box = this.element.getBoundingClientRect();
    const grid = this.canvas.getBoundingClientRect();
    const most = Math.max(0, box.width - this.tip.offsetWidth);
    const left = grid.left - box.left + x + this.at.column / 2 - this.tip.offsetWidth / 2;
    setStyle(this.tip, "left", `${Math.max(0, Math.min(most, left))}px`);
    // Where it would hide the whole map it goes below.
    const below = this.tip.offsetWidth > 0.7 * box.width
      ? this.at.top + this.layers * this.at.row + kAxisHeight : y + this.at.row;
    setStyle(this.tip, "top", `${grid.top - box.top + below + 8}px`);
  }

  destroy() {
    this.observer.disconnect();
    document.removeEventListener("pudica-theme", this.onTheme);
  }
}

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  setStyle(canvas, "width", `${width}px`);
  setStyle(canvas, "height", `${height}px`);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.clearRect(0, 0, width, height);
  return context;
}
