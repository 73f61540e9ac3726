// The three charts of a run, by Chart.js. Drawn anew only when their data or the theme change,
// without animation.

import { h, setAttribute, setHidden, setText } from "./dom.js";
import {
  bytes, byteUnit, count, dimensions, known, plural, seconds, shape, share, varying, volume,
} from "./format.js";

function colours() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  return Object.fromEntries(["ink", "ink-soft", "surface", "line", "grid", "budget", "predicted",
    "measured", "recomputed", "info", "bad", "sans"].map((name) => [name, value(`--${name}`)]));
}

// One chart with its title, legend and a sentence that says what it shows.
class ChartPanel {
  constructor({ title, legend, height }) {
    this.summary = h("p", { class: "note chart-summary" });
    this.canvas = h("canvas", { role: "img" });
    this.empty = h("p", { class: "none" }, "No step yet.");
    this.title = title;
    this.box = h("div", { class: "chart-box" }, this.canvas);
    this.box.dataset.height = height;
    const entries = legend.map(([sign, text]) => (
      h("li", null, h("span", { class: `sign sign-${sign}` }), text)));
    this.element = h("section", { class: "panel" },
      h("div", { class: "panel-head" }, h("h2", null, title),
        h("ul", { class: "legend" }, ...entries)),
      this.box, this.empty, this.summary);
    this.chart = null;
    this.seen = "";
    this.onTheme = () => this.redraw();
    document.addEventListener("pudica-theme", this.onTheme);
  }

  // `seen` says whether anything differs; `make(colours)` gives {datasets, x, y, tooltip}.
  update(seen, summary, isEmpty, make) {
    setText(this.summary, summary);
    setAttribute(this.canvas, "aria-label", `${this.title}. ${summary}`);
    setHidden(this.empty, !isEmpty);
    setHidden(this.box, isEmpty);
    this.make = make;
    if (seen === this.seen || isEmpty) return;
    this.seen = seen;
    this.redraw();
  }

  redraw() {
    if (!this.make || this.box.hidden || !this.element.isConnected) return;
    const palette = colours();
    const made = this.make(palette);
    const options = chartOptions(palette, made);
    Chart.defaults.font.family = palette.sans;
    Chart.defaults.font.size = 11;
    if (!this.chart) {
      this.chart = new Chart(this.canvas, {
        type: "scatter", data: { datasets: made.datasets }, options,
      });
      return;
    }
    made.datasets.forEach((dataset, index) => {
      Object.assign(this.chart.data.datasets[index], dataset);
    });
    this.chart.options = options;
    this.chart.update("none");
  }

  destroy() {
    document.removeEventListener("pudica-theme", this.onTheme);
    this.chart?.destroy();
  }
}

function chartOptions(palette, made) {
  const axis = ({ title, ...more }) => ({
    type: "linear",
    grid: { color: palette.grid, drawTicks: false, borderColor: palette.line },
    title: { display: Boolean(title), text: title, color: palette["ink-soft"] },
    ...more,
    ticks: { color: palette["ink-soft"], padding: 6, maxRotation: 0, ...more.ticks },
  });
  return {
    animation: false,
    responsive: true,
    maintainAspectRatio: false,
    normalized: true,
    interaction: { mode: "nearest", intersect: false, axis: made.nearest ?? "x" },
    scales: { x: axis(made.x), y: axis(made.y) },
    plugins: {
      legend: { display: false },
      tooltip: {
        backgroundColor: palette.ink,
        titleColor: palette.surface,
        bodyColor: palette.surface,
        displayColors: false,
        filter: (item, index) => index === 0,
        callbacks: {
          title: (items) => (items.length ? made.tooltip(items[0].raw.step)[0] : ""),
          label: (item) => made.tooltip(item.raw.step).slice(1),
        },
      },
    },
  };
}

const points = (steps, x, y) => steps.filter((step) => known(y(step)))
  .map((step) => ({ x: x(step), y: y(step), step }));

// A little more than the steps take, so that the last one is not cut off.
function stepRange(steps) {
  const [first, last] = [steps[0].step, steps[steps.length - 1].step];
  return { min: first, max: last + Math.max(1, Math.ceil((last - first) / 100)) };
}

const fingerprint = (steps, more) => {
  const last = steps[steps.length - 1];
  return JSON.stringify([steps.length, steps[0]?.step, last, more]);
};

function tell(step) {
  const lines = [
    `Step ${count(step.step)}, ${shape(step.key)}`,
    `measured ${bytes(step.measured_bytes)}`,
    `predicted ${bytes(step.predicted_bytes)}`,
  ];
  if (step.budget_bytes > 0) lines.push(`budget ${bytes(step.budget_bytes)}`);
  lines.push(`${seconds(step.seconds)}, ${recomputedText(step)}`);
  if (step.revocations > 0) lines.push(plural(step.revocations, "revocation"));
  if (step.host_peak_bytes > 0) lines.push(`${bytes(step.host_peak_bytes)} on the host`);
  if (known(step.allocator)) lines.push(`reserved ${bytes(step.allocator.reserved_bytes)}`);
  if (step.overrun) lines.push("overrun");
  if (step.learning) lines.push("learning");
  return lines;
}

export function recomputedText(step) {
  if (!known(step.recomputed)) return "recomputed unknown";
  const of = step.layers ? ` of ${step.layers}` : "";
  const time = known(step.recomputed_share) ? `, ${share(step.recomputed_share, 1)} of its time` : "";
  return `${step.recomputed}${of} recomputed${time}`;
}

export function peakChart() {
  const panel = new ChartPanel({
    title: "Peak memory by step",
    height: "tall",
    legend: [["measured", "measured"], ["predicted", "predicted"], ["learning", "learning step"],
      ["overrun", "overrun"], ["budget", "budget"]],
  });
  return {
    panel,
    update(steps) {
      panel.update(fingerprint(steps), peakSummary(steps), steps.length === 0, (palette) => {
        const unit = byteUnit(Math.max(...steps.map((step) => (
          Math.max(step.measured_bytes ?? 0, step.budget_bytes ?? 0)))));
        const at = (step) => step.step;
        const scaled = (name) => (step) => (known(step[name]) ? step[name] / unit.size : null);
        const some = (keep) => points(steps.filter(keep), at, scaled("measured_bytes"));
        return {
          x: { title: "step", ticks: { precision: 0, includeBounds: false }, ...stepRange(steps) },
          y: { title: unit.name, grace: "4%" },
          tooltip: tell,
          datasets: [
            dots(some((step) => !step.learning && !step.overrun), palette.measured, "circle", 2),
            dots(some((step) => step.learning && !step.overrun), palette.info, "triangle", 3.5),
            dots(some((step) => step.overrun), palette.bad, "crossRot", 6, 2.5),
            dots(points(steps, at, scaled("predicted_bytes")), palette.predicted, "circle", 4, 1,
              "transparent"),
            {
              type: "line", stepped: "before", borderColor: palette.budget, borderWidth: 2,
              pointRadius: 0, pointHitRadius: 0,
              data: points(steps.filter((step) => step.budget_bytes > 0), at,
                scaled("budget_bytes")),
            },
          ],
        };
      });
    },
  };
}

function dots(data, colour, pointStyle, radius, width = 1, fill = colour) {
  return {
    data, pointStyle, radius, hoverRadius: radius + 2, borderColor: colour, borderWidth: width,
    backgroundColor: fill, hoverBackgroundColor: fill,
  };
}

function peakSummary(steps) {
  const both = steps.filter((step) => (
    known(step.predicted_bytes) && step.predicted_bytes > 0 && step.measured_bytes > 0));
  if (both.length === 0) return steps.length ? "No step of these had a prediction." : "";
  const errors = both.map((step) => step.measured_bytes / step.predicted_bytes - 1);
  const middle = errors.map(Math.abs).sort((a, b) => a - b)[Math.floor(errors.length / 2)];
  const under = Math.max(0, ...errors);
  return `Over ${plural(both.length, "predicted step")}: median error ${share(middle, 2)}, ` +
    `worst under-prediction ${share(under, 2)}.`;
}

// Two point sets, told apart by shape and colour: nothing recomputed, something recomputed.
function timeSets(steps, x, palette) {
  const time = (step) => (step.seconds > 0 ? step.seconds * 1e3 : null);
  const some = (keep) => points(steps.filter(keep), x, time);
  return [
    dots(some((step) => !(step.recomputed > 0)), palette.measured, "circle", 2.5),
    dots(some((step) => step.recomputed > 0), palette.recomputed, "rectRot", 3.5),
  ];
}

const kTimeLegend = [["measured", "nothing recomputed"], ["recomputed", "some recomputed"]];
const timed = (steps) => steps.filter((step) => step.seconds > 0);

export function timeChart() {
  const panel = new ChartPanel({ title: "Step time by step", height: "low", legend: kTimeLegend });
  return {
    panel,
    update(steps, run) {
      const summary = timed(steps).length
        ? `Median ${seconds(run.step_seconds_median)} over the last 128 steps.` : "";
      panel.update(fingerprint(steps), summary, timed(steps).length === 0, (palette) => ({
        x: { title: "step", ticks: { precision: 0, includeBounds: false }, ...stepRange(steps) },
        y: { title: "ms", beginAtZero: true },
        tooltip: tell,
        datasets: timeSets(steps, (step) => step.step, palette),
      }));
    },
  };
}

export function lengthChart() {
  const panel = new ChartPanel({ title: "Step time by length", height: "low",
    legend: kTimeLegend });
  return {
    panel,
    update(steps) {
      const axis = varying(steps.map((step) => step.key));
      const name = axis?.name ?? "product of the shape's numbers";
      const x = (step) => (axis ? dimensions(step.key)[axis.index].value : volume(step.key));
      panel.update(fingerprint(steps, name), lengthSummary(steps, x, name),
        timed(steps).length === 0, (palette) => ({
          x: { title: name },
          y: { title: "ms", beginAtZero: true },
          nearest: "xy",
          tooltip: tell,
          datasets: timeSets(steps, x, palette),
        }));
    },
  };
}

function lengthSummary(steps, x, name) {
  const sorted = timed(steps).map((step) => ({ x: x(step), y: step.seconds }))
    .sort((a, b) => a.x - b.x);
  if (sorted.length < 4) return "";
  const quarter = Math.max(1, Math.floor(sorted.length / 4));
  const median = (list) => list.map((one) => one.y).sort((a, b) => a - b)[list.length >> 1];
  return `By ${name}: the shortest quarter takes ${seconds(median(sorted.slice(0, quarter)))}, ` +
    `the longest ${seconds(median(sorted.slice(-quarter)))} (medians).`;
}
