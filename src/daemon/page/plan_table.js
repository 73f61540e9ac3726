// Where each cached plan fits: every shape up to the corners of its region.

import { h, reconcile, setAttribute, setHidden, setStyle, setText, table } from "./dom.js";
import { bytes, compareKeys, count, dimensions, kDash, shape, share, varying } from "./format.js";
import { kModes, modeKind } from "./plan_map_paint.js";

const kFew = 12;

const kOrders = {
  hits: ["hits", (a, b) => b.hits - a.hits || compareKeys(a.key, b.key)],
  length: ["shape", (a, b) => compareKeys(a.key, b.key)],
  recent: ["last use", (a, b) => b.last_used_step - a.last_used_step],
};

const kHead = [
  ["Shape", ""], ["Layers by mode", ""], ["Fits every shape up to", ""], ["Predicted", "number"],
  ["Measured", "number"], ["Error", "number"], ["Slack", "number"], ["Hits", "number"],
  ["Made, last used", "number"], ["Why", "prose"],
];

function modeBar() {
  const parts = new Map(kModes.map(({ kind }) => [kind, h("span", { class: `mode-${kind}` })]));
  const bar = h("span", { class: "mode-bar", "aria-hidden": "true" }, ...parts.values());
  const text = h("span");
  return {
    element: h("span", { class: "mode-cell" }, text, bar),
    update(modes) {
      const counts = new Map();
      for (const mode of modes) {
        counts.set(modeKind(mode), (counts.get(modeKind(mode)) ?? 0) + 1);
      }
      for (const [kind, part] of parts) {
        setStyle(part, "width", `${(100 * (counts.get(kind) ?? 0) / modes.length).toFixed(2)}%`);
      }
      setText(text, [...counts].map(([kind, number]) => `${number} ${kind}`).join(", "));
    },
  };
}

// A line from the least to the greatest length; the plan's own length is a tick.
function regionBar() {
  const fill = h("span", { class: "region-fill" });
  const own = h("span", { class: "region-own" });
  const line = h("span", { class: "region-line", "aria-hidden": "true" }, fill, own);
  const text = h("span");
  return {
    element: h("span", { class: "region" }, text, line),
    update(entry, axis) {
      const corners = entry.fits_up_to ?? [];
      setText(text, corners.length ? corners.map(shape).join(", ") : kDash);
      setHidden(line, !axis || corners.length !== 1);
      if (line.hidden) return;
      const place = (key) => {
        const value = dimensions(key)[axis.index]?.value ?? axis.least;
        const ratio = (value - axis.least) / Math.max(1, axis.most - axis.least);
        return `${(Math.min(1, Math.max(0, ratio)) * 100).toFixed(2)}%`;
      };
      setStyle(fill, "width", place(corners[0]));
      setStyle(own, "left", place(entry.key));
    },
  };
}

function planRow(axisOf) {
  const cells = kHead.map(([, kind]) => h("td", { class: kind }));
  const modes = modeBar();
  const region = regionBar();
  cells[1].append(modes.element);
  cells[2].append(region.element);
  return {
    element: h("tr", null, ...cells),
    update(entry) {
      const measured = entry.measured_peak_bytes;
      setText(cells[0], shape(entry.key));
      modes.update(entry.plan?.modes ?? []);
      region.update(entry, axisOf());
      setText(cells[3], bytes(entry.predicted_peak_bytes));
      setText(cells[4], bytes(measured));
      setText(cells[5], measured && entry.predicted_peak_bytes
        ? signed(measured / entry.predicted_peak_bytes - 1) : kDash);
      setText(cells[6], bytes(entry.slack_bytes));
      setText(cells[7], count(entry.hits));
      setText(cells[8], `${count(entry.created_step)}, ${count(entry.last_used_step)}`);
      setText(cells[9], entry.reason ?? "");
    },
  };
}

const signed = (value) => `${value >= 0 ? "+" : "\u2212"}${share(Math.abs(value), 2)}`;

export class PlanTable {
  constructor() {
    this.plans = [];
    this.all = false;
    this.views = new Map();
    this.axis = null;
    this.order = h("select", { "aria-label": "Order of the plans",
      on: { change: () => this.render() } },
    ...Object.entries(kOrders).map(([value, [text]]) => h("option", { value }, `By ${text}`)));
    this.body = h("tbody");
    this.table = table({ label: "Cached plans", head: kHead, body: this.body, className: "" });
    this.more = h("button", { type: "button", on: { click: () => this.toggle() } });
    this.none = h("p", { class: "none" }, "No plan is cached.");
    this.element = h("section", { class: "panel" },
      h("div", { class: "panel-head" },
        h("div", null, h("h2", null, "Cached plans"),
          h("p", { class: "note" }, "And the region of shapes on which each of them fits.")),
        this.order),
      this.table, this.none, this.more);
  }

  toggle() {
    this.all = !this.all;
    this.render();
  }

  update(plans) {
    this.plans = plans;
    this.render();
  }

  render() {
    const keys = this.plans.flatMap((entry) => [entry.key, ...(entry.fits_up_to ?? [])]);
    this.axis = varying(keys.filter(Boolean));
    if (this.axis) {
      const values = keys.map((key) => dimensions(key)[this.axis.index]?.value ?? 0);
      this.axis.least = Math.min(...values);
      this.axis.most = Math.max(...values);
    }
    const sorted = [...this.plans].sort(kOrders[this.order.value][1]);
    const shown = this.all ? sorted : sorted.slice(0, kFew);
    reconcile(this.body, this.views, shown, (entry) => `${entry.key} ${entry.plan?.id}`,
      () => planRow(() => this.axis));
    setHidden(this.table, sorted.length === 0);
    setHidden(this.order, sorted.length < 2);
    setHidden(this.none, sorted.length > 0);
    setHidden(this.more, sorted.length <= kFew);
    setText(this.more, this.all ? "Show fewer" : `Show all ${count(sorted.length)}`);
    setAttribute(this.more, "aria-expanded", String(this.all));
  }
}
