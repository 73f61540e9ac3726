// What the run has learned: for each class and segment the polynomial of every quantity.

import { h, reconcile, setHidden, setText, table } from "./dom.js";
import { count, kDash, plural } from "./format.js";

const kQuantities = { net_bytes: "net, bytes", peak_bytes: "peak, bytes", seconds: "time" };
const kTheStep = "The step around the layers";

const kHead = [
  ["Segment", ""], ["Mode", ""], ["Quantity", ""], ["Learned as", ""], ["Basis", ""],
  ["Samples", "number"], ["Shapes", "number"],
];

// "backward/0/selective:2/last" -> its parts
export function segmentParts(text) {
  const [kind, layerClass, mode, ...variant] = String(text).split("/");
  return { kind, layerClass, mode: mode ?? "", variant: variant.join(", ").replaceAll("-", " ") };
}

function monomialText(monomial) {
  return monomial.replaceAll("*", "\u00b7").replaceAll("^2", "\u00b2").replaceAll("^3", "\u00b3");
}

function coefficientText(value, quantity) {
  if (quantity === "seconds") return `${Number((value * 1e6).toPrecision(4))} \u00b5s`;
  return Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(6)));
}

// One row a term of a maximum: "2,048 batch*source + 16 batch*source^2".
function formula(learned) {
  return (learned.coefficients ?? []).map((row) => {
    const terms = row.map((value, index) => [value, learned.monomials?.[index] ?? "?"])
      .filter(([value]) => value !== 0)
      .map(([value, monomial]) => {
        const number = coefficientText(value, learned.quantity);
        return monomial === "1" ? number : `${number} ${monomialText(monomial)}`;
      });
    return terms.length ? terms.join("  +  ") : "0";
  });
}

function learnedRow() {
  const cells = kHead.map(([, kind]) => h("td", { class: kind }));
  let seen = "";
  return {
    element: h("tr", null, ...cells),
    update(learned) {
      const parts = segmentParts(learned.segment);
      setText(cells[0], parts.variant ? `${parts.kind}, ${parts.variant}` : parts.kind);
      setText(cells[1], parts.mode);
      setText(cells[2], kQuantities[learned.quantity] ?? learned.quantity);
      const lines = formula(learned);
      if (lines.join("\n") !== seen) {
        seen = lines.join("\n");
        cells[3].replaceChildren(
          ...(lines.length > 1 ? [h("span", { class: "of-these" }, "the largest of")] : []),
          ...lines.map((line) => h("span", { class: "formula" }, line)));
      }
      setText(cells[4], learned.basis ?? kDash);
      setText(cells[5], count(learned.samples));
      setText(cells[6], count(learned.distinct_shapes));
    },
  };
}

function classView(first) {
  const name = h("span", { class: "wrap" }, first.name);
  const tally = h("span", { class: "note" });
  const body = h("tbody");
  const views = new Map();
  const element = h("details", { class: "class" },
    h("summary", null, name, tally),
    table({ label: `Learned: ${first.name}`, head: kHead, body }));
  return {
    element,
    update(group) {
      const segments = new Set(group.rows.map((learned) => learned.segment)).size;
      setText(tally, `${plural(segments, "segment")}, ${plural(group.rows.length, "quantity",
        "quantities")}`);
      reconcile(body, views, group.rows, (learned) => `${learned.segment} ${learned.quantity}`,
        learnedRow);
    },
  };
}

export class Learned {
  constructor() {
    this.views = new Map();
    this.groups = h("div");
    this.none = h("p", { class: "none" }, "Nothing is learned yet.");
    this.element = h("section", { class: "panel" },
      h("div", { class: "panel-head" }, h("h2", null, "Learned coefficients"),
        h("p", { class: "note" }, "Bytes and times of a step's segments as functions of the " +
          "shape; layers of one class share theirs.")),
      this.none, this.groups);
  }

  update(learned) {
    const groups = new Map();
    for (const one of learned ?? []) {
      const parts = segmentParts(one.segment);
      const ofLayer = ["forward", "backward", "recompute"].includes(parts.kind);
      const name = ofLayer ? one.class_name ?? `class ${parts.layerClass}` : kTheStep;
      if (!groups.has(name)) groups.set(name, { name, rows: [] });
      groups.get(name).rows.push(one);
    }
    // Layers first.
    const rank = (group) => (group.name === kTheStep ? 1 : 0);
    const ordered = [...groups.values()].sort((a, b) => rank(a) - rank(b));
    setHidden(this.none, groups.size > 0);
    reconcile(this.groups, this.views, ordered, (group) => group.name, classView);
  }
}
