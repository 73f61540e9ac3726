// Numbers, times and shapes as text. Bytes read as the command line prints them.

export const kDash = "\u2013";
export const kTimes = "\u00d7";
const kUnits = ["B", "KiB", "MiB", "GiB", "TiB"];

export const known = (value) => value !== null && value !== undefined;

export function bytes(value) {
  if (!known(value)) return kDash;
  let scaled = value;
  let unit = 0;
  while (Math.abs(scaled) >= 1024 && unit + 1 < kUnits.length) {
    scaled /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? scaled.toFixed(0) : scaled.toFixed(1)} ${kUnits[unit]}`;
}

// The unit in which a chart of values up to `most` reads well.
export function byteUnit(most) {
  let size = 1;
  let unit = 0;
  while (most / size >= 2048 && unit + 1 < kUnits.length) {
    size *= 1024;
    unit += 1;
  }
  return { size, name: kUnits[unit] };
}

export function seconds(value) {
  if (!known(value) || value <= 0) return kDash;
  if (value < 1e-3) return `${(value * 1e6).toFixed(0)} \u00b5s`;
  if (value < 0.1) return `${(value * 1e3).toFixed(1)} ms`;
  if (value < 1) return `${(value * 1e3).toFixed(0)} ms`;
  if (value < 100) return `${value.toFixed(2)} s`;
  return duration(value);
}

// "42 s", "3 min", "2 h 5 min", "4 d 3 h"
export function duration(value) {
  const whole = Math.max(0, Math.round(value));
  if (whole < 90) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function share(value, digits = 0) {
  return known(value) ? `${(value * 100).toFixed(digits)} %` : kDash;
}

// A budget's place: 0 is what recomputing every layer of the longest batch needs, 1 keeping all.
export function ofRange(fraction) {
  return `${Number(fraction.toFixed(4))} of its range`;
}

// ["5 %" of the time, "53 %" of calls]: what the API says of running layers again; null: unknown.
export function recomputedShares(run, digits = 0) {
  return [run.recomputed_share, run.recomputed_calls_share]
    .map((one) => (known(one) ? share(one, digits) : null));
}

export function count(value) {
  return known(value) ? value.toLocaleString("en-US") : kDash;
}

export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function clock(date) {
  const two = (number) => String(number).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export function moment(text) {
  if (!text) return kDash;
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return text;
  const today = new Date().toDateString() === date.toDateString();
  const day = date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return today ? clock(date) : `${day} ${clock(date)}`;
}

// "batch=12,source=384" -> [{name: "batch", value: 12}, ...]; numbers alone have no names.
export function dimensions(key) {
  return String(key ?? "").split(/[,x]/).filter((part) => part !== "").map((part) => {
    const at = part.lastIndexOf("=");
    return { name: at < 0 ? "" : part.slice(0, at), value: Number(part.slice(at + 1)) };
  });
}

// "12 x 384"
export function shape(key) {
  const parts = dimensions(key);
  if (parts.length === 0 || parts.some((part) => Number.isNaN(part.value))) return key ?? kDash;
  return parts.map((part) => part.value).join(kTimes);
}

export function volume(key) {
  return dimensions(key).reduce((product, part) => product * part.value, 1);
}

// The dimension that differs among the keys, if it is one only: {index, name}; else null.
export function varying(keys) {
  const all = keys.map(dimensions);
  if (all.length < 2) return null;
  const different = all[0]
    .map((part, index) => ({ index, name: part.name || `dimension ${index + 1}` }))
    .filter(({ index }) => all.some((one) => one[index]?.value !== all[0][index].value));
  return different.length === 1 ? different[0] : null;
}

// Shorter shapes first.
export function compareKeys(a, b) {
  const difference = volume(a) - volume(b);
  return difference !== 0 ? difference : String(a).localeCompare(String(b));
}

const kStates = {
  registered: "registered",
  learning: "learning",
  planning: "planning",
  standing_down: "standing down",
  ended: "ended",
  lost: "lost",
};

export function stateText(run) {
  const text = kStates[run.state] ?? String(run.state ?? "unknown");
  return run.state === "ended" && run.status ? `ended: ${run.status}` : text;
}

// Runs number their steps from 1.
export const stepsDone = (run) => run.step ?? 0;

export function stepsText(run) {
  const done = count(stepsDone(run));
  return run.steps_total ? `${done} / ${count(run.steps_total)}` : done;
}
