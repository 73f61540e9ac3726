// How a mode looks: colour, hatching, letter.

import { h, setStyle } from "./dom.js";

export const kModes = [
  { kind: "keep", letter: "", text: "keep: nothing is recomputed" },
  { kind: "selective", letter: "S", text: "selective: recomputed in part" },
  { kind: "offload", letter: "O", text: "offload: held in host memory" },
  { kind: "full", letter: "F", text: "full: recomputed whole" },
];

// "selective:2" -> "selective"
export const modeKind = (mode) => String(mode).split(":")[0];

// The theme's colours as the style sheet has them now.
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  const modes = new Map(kModes.map(({ kind }) => [kind, value(`--mode-${kind}`)]));
  return {
    modes,
    ink: value("--ink"),
    inkSoft: value("--ink-soft"),
    lineStrong: value("--line-strong"),
    modeInk: value("--mode-ink"),
    mark: value("--mode-mark"),
    budget: value("--budget"),
    base: value("--base"),
    sans: value("--sans"),
  };
}

// Lines in the canvas's own coordinates, so that neighbouring cells join up: full leans right,
// selective leans left, offload lies flat, keep is plain.
function hatch(context, cell, kind) {
  const { x, y, width, height } = cell;
  context.beginPath();
  if (kind === "offload") {
    for (let line = Math.ceil(y / 4) * 4; line < y + height; line += 4) {
      context.moveTo(x, line + 0.5);
      context.lineTo(x + width, line + 0.5);
    }
  } else {
    const lean = kind === "full" ? 1 : -1;
    const step = kind === "full" ? 5 : 9;
    const low = lean > 0 ? x + y : x - y - height;
    const high = lean > 0 ? x + width + y + height : x + width - y;
    for (let sum = Math.ceil(low / step) * step; sum < high; sum += step) {
      // Points of x + lean * y = sum within the cell.
      const first = Math.max(y, lean > 0 ? sum - x - width : x - sum);
      const last = Math.min(y + height, lean > 0 ? sum - x : x + width - sum);
      if (last <= first) continue;
      context.moveTo(sum - lean * first, first);
      context.lineTo(sum - lean * last, last);
    }
  }
  context.stroke();
}

// A letter where there is room for one, else hatching.
export function drawCell(context, colours, cell, roomy) {
  const kind = modeKind(cell.mode);
  context.fillStyle = colours.modes.get(kind) ?? colours.lineStrong;
  context.fillRect(cell.x, cell.y, cell.width, cell.height);
  if (kind === "keep") return;
  if (roomy) {
    drawLetter(context, colours, cell, kind);
    return;
  }
  context.strokeStyle = colours.mark;
  context.lineWidth = 1;
  hatch(context, cell, kind);
}

function drawLetter(context, colours, cell, kind) {
  const level = String(cell.mode).split(":")[1];
  const letter = level ?? kModes.find((mode) => mode.kind === kind)?.letter ?? "?";
  context.fillStyle = colours.modeInk;
  context.font = `600 11px ${colours.sans}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(letter, cell.x + cell.width / 2, cell.y + cell.height / 2 + 0.5);
  context.textAlign = "left";
}

// An entry of the legend: the hatching and the letter of narrow and of wide cells.
export function legendSwatch(mode) {
  const canvas = h("canvas", { class: "swatch", "data-mode": mode.kind, "aria-hidden": "true" });
  const letter = mode.kind === "selective" ? "1, 2, ..." : mode.letter;
  return {
    element: h("li", null, canvas, letter ? `${letter} ${mode.text}` : mode.text),
    draw(colours) {
      const ratio = window.devicePixelRatio || 1;
      canvas.width = 22 * ratio;
      canvas.height = 14 * ratio;
      setStyle(canvas, "width", "22px");
      setStyle(canvas, "height", "14px");
      const context = canvas.getContext("2d");
      context.scale(ratio, ratio);
      drawCell(context, colours, { x: 0, y: 0, width: 22, height: 14, mode: mode.kind }, false);
    },
  };
}
