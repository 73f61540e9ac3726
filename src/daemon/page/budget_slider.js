// What another budget would cost: a slider over the frontier of memory and time, for the longest,
// the median and the shortest batch. The frontier of a shape is asked for once and read here while
// the slider moves; where it comes to rest the daemon says what it would plan, layer by layer.

import { ApiError, get } from "./api.js";
import { h, reconcile, setAttribute, setHidden, setText, table, textRow } from "./dom.js";
import { bytes, kDash, known, seconds, shape } from "./format.js";
import {
  changeText, differenceText, extraAt, layersText, priceText, rangeOf, representatives,
  usableShare,
} from "./frontier.js";

const kRestMs = 350;
const kAskAgainMs = 30000;  // where the batches have become others

const kHead = [
  ["Batch", "", (row) => `${row.names.join(", ")}: ${shape(row.key)}`],
  ["Step now", "number", (row) => (row.seconds > 0 ? seconds(row.seconds) : kDash)],
  ["With this budget", "number", (row) => row.price],
  ["Predicted peak", "number", (row) => row.peak],
  ["Layers not kept", "prose", (row) => row.layers],
  ["Other than now", "prose", (row) => row.change],
];

export class BudgetSlider {
  constructor() {
    this.views = new Map();
    this.shapes = [];
    this.asked = "";
    this.askedAt = 0;
    this.round = 0;
    this.build();
  }

  build() {
    this.slider = h("input", {
      type: "range", id: "budget-slider", "aria-describedby": "budget-said",
      on: { input: () => this.moved() },
    });
    this.reading = h("span", { class: "budget-reading" });
    this.said = h("p", { id: "budget-said", role: "status", "aria-live": "polite" });
    this.command = h("p", { class: "note" });
    this.none = h("p", { class: "none" });
    this.rows = h("tbody");
    this.table = table({ label: "Another budget", head: kHead, body: this.rows });
    this.body = h("div", { class: "what-if" },
      h("div", { class: "slider-line" },
        h("label", { for: "budget-slider" }, "Budget"), this.slider, this.reading),
      this.said, this.table, this.command);
    this.element = h("section", { class: "panel" },
      h("div", { class: "panel-head" }, h("h2", null, "Another budget"),
        h("p", { class: "note" }, "What it would cost. Moving the slider changes nothing.")),
      this.none, this.body);
    this.body.hidden = true;
  }

  update(run, steps) {
    this.run = run;
    const shapes = representatives(steps, run.longest_keys);
    const learning = run.state === "registered" || run.state === "learning";
    const silent = learning || run.has_model === false || shapes.length === 0;
    if (silent && this.shapes.length === 0) {
      this.refuse(learning ? "Known once the run has learned its layers."
        : "Nothing is learned that could answer.");
    }
    if (silent) return;
    const others = JSON.stringify([run.id, shapes.map((one) => one.key)]);
    const budgetMoved = this.budget !== run.budget_bytes;
    if (!budgetMoved && (others === this.asked || Date.now() - this.askedAt < kAskAgainMs)) return;
    this.asked = others;
    this.askedAt = Date.now();
    this.ask(shapes, budgetMoved);
  }

  refuse(text) {
    setText(this.none, text);
    setHidden(this.none, false);
    setHidden(this.body, true);
  }

  path(question, key, budget) {
    const of = `/v1/runs/${encodeURIComponent(this.run.id)}/${question}`;
    const limit = known(budget) ? `&budget=${budget}` : "";
    return `${of}?shape=${encodeURIComponent(key)}${limit}`;
  }

  // The frontiers, and the layers as they are now.
  async ask(shapes, budgetMoved) {
    const round = this.begin();
    this.budget = this.run.budget_bytes;
    try {
      for (const one of shapes) {
        one.estimate = await get(this.path("estimate", one.key), this.signal);
        one.now = await get(this.path("explain", one.key), this.signal);
      }
    } catch (error) {
      if (round !== this.round) return;
      const unknown = error instanceof ApiError && error.status === 404;
      this.refuse(unknown ? "Nothing is kept that could answer." : error.message);
      if (!this.run.ended_at) this.asked = "";  // again, some time later
      return;
    }
    if (round !== this.round) return;
    const anew = budgetMoved || this.shapes.length === 0;
    this.shapes = shapes;
    setHidden(this.none, true);
    setHidden(this.body, false);
    this.span(anew);
    this.moved();
    this.rest();
  }

  // A new question: what is still under way no longer counts.
  begin() {
    clearTimeout(this.timer);
    this.controller?.abort();
    this.controller = new AbortController();
    this.signal = this.controller.signal;
    this.round += 1;
    return this.round;
  }

  // The slider reaches from below the floor of the longest batch to where nothing is recomputed.
  span(anew) {
    const range = rangeOf(this.shapes, this.run.budget_bytes);
    const value = anew ? range.now : Number(this.slider.value);
    for (const name of ["min", "max", "step"]) setAttribute(this.slider, name, range[name]);
    this.slider.value = String(value);
    this.now = range.now;
  }

  get value() {
    return Number(this.slider.value);
  }

  // From the frontier alone: at once, and about.
  moved() {
    this.begin();
    this.render((one) => {
      const extra = extraAt(one, this.value);
      const price = extra === null ? "does not fit" : this.value === this.now ? "as now"
        : `about ${priceText(extra - one.now.extra_seconds, one)}`;
      return { price, peak: kDash, layers: "", change: "" };
    });
    setAttribute(this.table, "aria-busy", "true");
    this.timer = setTimeout(() => this.rest(), kRestMs);
  }

  // What the daemon would plan under this budget.
  async rest() {
    const round = this.begin();
    const budget = this.value === this.now ? null : this.value;
    const answers = new Map();
    try {
      for (const one of this.shapes) {
        answers.set(one.key, budget === null ? one.now
          : await get(this.path("explain", one.key, budget), this.signal));
      }
    } catch (error) {
      if (round === this.round) setText(this.said, error.message);
      return;
    }
    if (round !== this.round) return;
    this.render((one) => restingRow(one, answers.get(one.key), budget === null));
    setAttribute(this.table, "aria-busy", null);
    setText(this.said, this.summary());
  }

  render(told) {
    const rows = this.shapes.map((one) => ({ ...one, ...told(one) }));
    reconcile(this.rows, this.views, rows, (row) => row.key, () => textRow(kHead));
    this.median = rows.find((row) => row.names.includes("median"));
    setText(this.reading, `${bytes(this.value)}, ${differenceText(this.value - this.now)}`);
    setAttribute(this.slider, "aria-valuetext", this.summary());
    setText(this.command, this.value === this.now ? ""
      : `To set it: pudica budget ${this.run.id} ${this.value}`);
  }

  // "With 2.0 GiB less: +3.1 % a step (median batch)"
  summary() {
    const change = differenceText(this.value - this.now);
    if (this.value === this.now) return `${bytes(this.value)}: the budget as it is`;
    return `With ${change} (${bytes(this.value)}): ${this.median?.price ?? kDash}, median batch`;
  }

  destroy() {
    this.begin();
  }
}

function restingRow(one, answer, isNow) {
  if (!answer) return { price: kDash, peak: kDash, layers: "", change: "" };
  const extra = answer.extra_seconds - one.now.extra_seconds;
  const least = answer.floor_peak_bytes / usableShare(answer);
  const price = isNow ? "as now" : priceText(extra, one);
  return {
    price: answer.fits ? price : `does not fit: needs ${bytes(least)}`,
    peak: bytes(answer.predicted_peak_bytes),
    layers: layersText(answer.layers),
    change: isNow ? "" : changeText(one.now.layers, answer.layers),
  };
}
