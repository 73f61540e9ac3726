// Reading a frontier of memory and time, and saying in words what a plan changes.

import { bytes, compareKeys, known, seconds, share } from "./format.js";

// The longest, the median and the shortest of the steps' batches: {key, names, seconds}, of one
// shape once only; the longest may be of a step that is not kept any more. `seconds` is the median
// of the steps of that shape, 0 where none was measured.
export function representatives(steps, longestKeys = []) {
  const sorted = steps.filter((step) => step.key)
    .sort((one, other) => compareKeys(one.key, other.key));
  if (sorted.length === 0) return [];
  const out = new Map();
  const last = sorted.length - 1;
  const longest = [sorted[last].key, ...longestKeys].sort(compareKeys).at(-1);
  const named = [
    ["longest", longest], ["median", sorted[last >> 1].key], ["shortest", sorted[0].key],
  ];
  for (const [name, key] of named) {
    if (!out.has(key)) out.set(key, { key, names: [], seconds: secondsOf(sorted, key) });
    out.get(key).names.push(name);
  }
  return [...out.values()];
}

function secondsOf(steps, key) {
  const same = steps.filter((step) => step.key === key && step.seconds > 0);
  const planned = same.filter((step) => !step.learning);
  const times = (planned.length > 0 ? planned : same).map((step) => step.seconds)
    .sort((one, other) => one - other);
  return times.length > 0 ? times[times.length >> 1] : 0;
}

// What plans may use of a budget: the margin is a share of it.
export const usableShare = (answer) => (
  answer.budget_bytes > 0 ? 1 - answer.margin_bytes / answer.budget_bytes : 1);

// Seconds that the fastest plan of the frontier costs that stays within the budget; null: none.
export function extraAt({ estimate, now }, budget) {
  const room = budget * usableShare(now);
  if (room >= estimate.keep_all_peak_bytes) return 0;
  const within = estimate.frontier.filter((point) => point.peak_bytes <= room);
  return within.length > 0 ? Math.min(...within.map((point) => point.extra_seconds)) : null;
}

// What the slider goes over, in steps that hit the budget as it is.
export function rangeOf(shapes, budgetBytes) {
  const most = (name) => (
    Math.max(...shapes.map((one) => one.estimate[name] / usableShare(one.now))));
  const now = budgetBytes > 0 ? budgetBytes : Math.ceil(most("keep_all_peak_bytes"));
  const low = Math.min(now, 0.98 * most("floor_peak_bytes"));
  const high = Math.max(now, 1.02 * most("keep_all_peak_bytes"));
  const step = 2 ** Math.max(0, Math.round(Math.log2((high - low) / 400)));
  return {
    now, step,
    min: Math.max(now % step, now - Math.ceil((now - low) / step) * step),
    max: now + Math.ceil((high - now) / step) * step,
  };
}

export function differenceText(difference) {
  if (difference === 0) return "as now";
  return `${bytes(Math.abs(difference))} ${difference < 0 ? "less" : "more"}`;
}

// "+3.1 % a step (+9.2 ms)"
export function priceText(extra, { seconds: step }) {
  const sign = extra < 0 ? "\u2212" : "+";
  const size = Math.abs(extra);
  if (size < 1e-7) return "no slower";
  if (!(step > 0)) return `${sign}${seconds(size)} a step`;
  return `${sign}${share(size / step, 1)} a step (${sign}${seconds(size)})`;
}

// [0, 1, 2, 5] -> "0\u20132, 5"
function ranges(numbers) {
  const parts = [];
  for (const number of numbers) {
    const last = parts[parts.length - 1];
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}\u2013${last}`))
    .join(", ");
}

function grouped(entries) {
  const groups = new Map();
  for (const [name, layer] of entries) {
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(layer);
  }
  return [...groups].map(([name, layers]) => `${name}: ${ranges(layers)}`).join("; ");
}

// "full: 0\u20132; selective:1: 5"
export function layersText(layers) {
  return grouped(layers.filter((one) => one.mode !== "keep")
    .map((one) => [one.mode, one.layer])) || "none";
}

// "keep \u2192 full: 3, 4"
export function changeText(before, after) {
  const changed = after.filter((one, index) => known(before[index]) &&
    before[index].mode !== one.mode);
  return grouped(changed.map((one) => (
    [`${before[one.layer].mode} \u2192 ${one.mode}`, one.layer]))) || "none";
}
