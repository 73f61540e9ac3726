// What a device's caching allocator takes beside the bytes in use: only of runs whose steps tell it.

import { h, reconcile, setHidden, table, textRow } from "./dom.js";
import { bytes, known } from "./format.js";

const kHead = [
  ["Device memory", "", (row) => row.name],
  ["Last step", "number", (row) => bytes(row.last)],
  ["Most", "number", (row) => bytes(row.most)],
  ["What it is", "prose", (row) => row.meaning],
];

const kParts = [
  ["Allocated", (step) => step.measured_bytes, "what tensors took, at most"],
  ["Active", (step) => step.allocator.active_bytes, "blocks, with what they have beyond that"],
  ["Reserved", (step) => step.allocator.reserved_bytes, "taken from the device"],
  ["Gap", (step) => step.allocator.gap_bytes, "could not have been given back: holes and rounding"],
];

export class AllocatorTable {
  constructor() {
    this.views = new Map();
    this.rows = h("tbody");
    this.element = h("div", { class: "allocator" },
      table({ label: "Device memory", head: kHead, body: this.rows }));
    this.element.hidden = true;
  }

  update(steps) {
    const told = steps.filter((step) => known(step.allocator));
    setHidden(this.element, told.length === 0);
    if (told.length === 0) return;
    const rows = kParts.map(([name, of, meaning]) => (
      { name, meaning, last: of(told[told.length - 1]), most: Math.max(...told.map(of)) }));
    reconcile(this.rows, this.views, rows, (row) => row.name, () => textRow(kHead));
  }
}
