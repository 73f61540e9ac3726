// A run's memory against its budget: base bytes, the last step, the measured peak, what the
// planner holds back, and, beyond the budget, what keeping everything would take.

import { h, setAttribute, setHidden, setStyle, setText } from "./dom.js";
import { bytes, known, ofRange, share } from "./format.js";

export function budgetBar() {
  const part = (name) => h("span", { class: name });
  const parts = {
    demand: part("bar-demand"),
    last: part("bar-fill bar-last"),
    base: part("bar-fill bar-base"),
    margin: part("bar-margin"),
    peak: part("bar-mark bar-peak"),
    budget: part("bar-mark bar-budget"),
  };
  const track = h("span", { class: "bar-track", role: "img" }, ...Object.values(parts));
  const figure = h("strong");
  const limit = h("span", { class: "bar-limit" });
  const element = h("div", { class: "bar" },
    h("p", { class: "bar-text" }, h("span", null, figure, h("span", { class: "bar-of" })), limit),
    track);
  const of = element.querySelector(".bar-of");

  return {
    element,
    update(run, marginBytes) {
      const scale = scaleOf(run);
      const place = (value) => `${(Math.min(1, Math.max(0, value / scale)) * 100).toFixed(2)}%`;
      const limited = run.budget_bytes > 0;
      const last = run.last?.measured_bytes;
      placePart(parts.base, run.base_bytes, "width", place);
      placePart(parts.last, last, "width", place);
      placePart(parts.peak, run.peak_bytes, "left", place);
      placePart(parts.budget, limited ? run.budget_bytes : null, "left", place);
      const beyond = limited && run.keep_all_bytes > run.budget_bytes;
      placePart(parts.demand, beyond ? run.keep_all_bytes : null, "width", place);
      const held = limited && marginBytes > 0 ? marginBytes : null;
      placePart(parts.margin, held, "width", place);
      if (held) setStyle(parts.margin, "right", place(scale - run.budget_bytes));
      setAttribute(track, "data-over", Boolean(run.last?.overrun));
      setText(figure, bytes(run.peak_bytes));
      setText(of, limited && run.peak_bytes ? ` peak${usedText(run)}` : " peak");
      setText(limit, limited ? `budget ${bytes(run.budget_bytes)}${placeText(run)}` : "no limit");
      setAttribute(track, "aria-label", describe(run, marginBytes));
    },
  };
}

// Of a budget that follows what its longest batches need.
function placeText(run) {
  return known(run.budget_fraction) ? `, ${ofRange(run.budget_fraction)}` : "";
}

// Each peak is judged by the budget of its own step; a peak above the present budget is one of a
// time when it was larger.
function usedText(run) {
  if (run.peak_bytes > run.budget_bytes && !(run.budget_used > 1)) return " under an earlier budget";
  return known(run.budget_used) ? `, ${share(run.budget_used, 1)}` : "";
}

function scaleOf(run) {
  const used = Math.max(run.budget_bytes ?? 0, run.peak_bytes ?? 0,
    run.last?.measured_bytes ?? 0, run.base_bytes ?? 0, 1);
  const demand = Math.min(run.keep_all_bytes ?? 0, 2.5 * used);  // beyond, it runs off the end
  return Math.max(used, demand) * 1.015;  // the outermost mark stays inside
}

function placePart(element, value, property, place) {
  setHidden(element, !(known(value) && value > 0));
  if (known(value)) setStyle(element, property, place(value));
}

function describe(run, marginBytes) {
  const said = [`measured peak ${bytes(run.peak_bytes)}`];
  if (run.last) said.push(`last step ${bytes(run.last.measured_bytes)}`);
  if (known(run.base_bytes)) said.push(`base ${bytes(run.base_bytes)}`);
  if (run.budget_bytes > 0) said.push(`budget ${bytes(run.budget_bytes)}${placeText(run)}`);
  if (marginBytes > 0) said.push(`margin ${bytes(marginBytes)}`);
  if (known(run.keep_all_bytes)) said.push(`everything kept ${bytes(run.keep_all_bytes)}`);
  return said.join(", ");
}

export function budgetLegend() {
  const entry = (name, text) => h("li", null, h("span", { class: `key ${name}` }), text);
  return h("ul", { class: "legend" },
    entry("bar-base", "base"), entry("bar-last", "last step"), entry("bar-peak", "measured peak"),
    entry("bar-margin", "margin held back"), entry("bar-budget", "budget"),
    entry("bar-demand", "everything kept"));
}
