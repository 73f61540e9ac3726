// One run: where its memory goes, what its plans are, why, and what it has learned.

import { get } from "./api.js";
import { AllocatorTable } from "./allocator.js";
import { budgetBar, budgetLegend } from "./budget_bar.js";
import { BudgetSlider } from "./budget_slider.js";
import { lengthChart, peakChart, recomputedText, timeChart } from "./charts.js";
import {
  announce, h, reconcile, setAttribute, setHidden, setText, table, textRow,
} from "./dom.js";
import {
  bytes, count, duration, kDash, known, moment, ofRange, seconds, shape, share, stateText,
  stepsText,
} from "./format.js";
import { Learned } from "./learned.js";
import { PlanMap } from "./plan_map.js";
import { PlanTable } from "./plan_table.js";

const kPlansEvery = 4;  // polls, if no plan was made in between
const kStepsShown = 24;

const kStepColumns = [
  ["Step", "number", (step) => count(step.step)],
  ["Shape", "", (step) => shape(step.key)],
  ["Plan", "number", (step) => (known(step.plan_id) ? String(step.plan_id) : kDash)],
  ["Predicted", "number", (step) => bytes(step.predicted_bytes)],
  ["Measured", "number", (step) => bytes(step.measured_bytes)],
  ["Budget", "number", (step) => (step.budget_bytes > 0 ? bytes(step.budget_bytes) : kDash)],
  ["Time", "number", (step) => seconds(step.seconds)],
  ["Layers", "", recomputedText],
  ["Revoked", "number", (step) => count(step.revocations)],
  ["Notes", "", (step) => [step.learning && "learning", step.overrun && "overrun"]
    .filter(Boolean).join(", ")],
];

const kBudgetColumns = [
  ["Asked", "", (change) => moment(change.at)],
  ["From step", "number", (change) => count(change.step)],
  ["Budget", "number", (change) => (change.budget_bytes > 0 ? bytes(change.budget_bytes)
    : "no limit")],
  ["By", "", (change) => change.source ?? ""],
  ["First plan", "number", (change) => (known(change.plan_id) ? String(change.plan_id) : kDash)],
  ["Predicted", "number", (change) => bytes(change.predicted_bytes)],
  ["Measured", "number", (change) => bytes(change.measured_bytes)],
];

const kCounterNames = {
  steps: "Steps", learning_steps: "Learning steps", plans_made: "Plans made",
  infeasible_steps: "Infeasible steps", revoked_steps: "Steps with a revocation",
  revocations: "Revocations", overruns: "Overruns", drifts: "Drifts",
};

// A list of names and values, kept by name.
function factList(className) {
  const element = h("dl", { class: className });
  const views = new Map();
  const make = (first) => {
    const value = h("dd");
    const part = h("div", null, h("dt", null, first[0]), value);
    return {
      element: part,
      update([, text, kind]) {
        setText(value, text);
        setAttribute(part, "class", kind || null);
      },
    };
  };
  return {
    element,
    update: (entries) => reconcile(element, views, entries, (entry) => entry[0], make),
  };
}

export class RunView {
  constructor(shell, id) {
    this.shell = shell;
    this.id = id;
    this.title = id;
    this.polls = 0;
    this.plans = [];
    this.steps = new Map();
    this.views = { steps: new Map(), budgets: new Map() };
    this.build();
  }

  build() {
    this.heading = h("h1", { tabindex: "-1" }, this.id);
    this.state = h("span", { class: "state" });
    this.reason = h("p", { class: "wrap" });
    this.command = h("p", { class: "mono wrap command-line" });
    this.about = factList("about");
    this.bar = budgetBar();
    this.pending = h("p", { class: "note" });
    this.tiles = factList("tiles");
    this.allocator = new AllocatorTable();
    this.charts = { peak: peakChart(), time: timeChart(), length: lengthChart() };
    this.slider = new BudgetSlider();
    this.map = new PlanMap();
    this.table = new PlanTable();
    this.learned = new Learned();
    this.counters = factList("counters");
    this.budgetRows = h("tbody");
    this.stepRows = h("tbody");
    this.body = h("div", { class: "run-body" },
      h("section", { class: "panel memory", "aria-label": "Memory" },
        this.bar.element, h("div", { class: "memory-foot" }, budgetLegend(), this.pending),
        this.tiles.element, this.allocator.element),
      this.charts.peak.panel.element,
      h("div", { class: "pair" }, this.charts.time.panel.element,
        this.charts.length.panel.element),
      this.slider.element,
      panel("Plan map", "Every cached plan, shorter shapes left. The triangle marks the last step.",
        this.map.element),
      this.table.element, this.learned.element,
      h("div", { class: "pair uneven" },
        panel("Counters", "", this.counters.element),
        panel("Budgets", "Each change with the first step under it.",
          table({ label: "Budgets", head: kBudgetColumns, body: this.budgetRows }))),
      panel("Last steps", "", table({ label: "Last steps", head: kStepColumns,
        body: this.stepRows })));
    this.missing = h("div", { class: "notice" });
    this.body.hidden = true;
    this.missing.hidden = true;
    this.element = h("article", { class: "run" },
      h("p", { class: "crumb" }, h("a", { href: "#/" }, "All runs")),
      h("header", { class: "run-head" },
        h("div", { class: "run-title" }, this.heading, this.state), this.reason, this.command,
        this.about.element),
      this.missing, this.body);
  }

  async refresh(signal) {
    const path = `/v1/runs/${encodeURIComponent(this.id)}`;
    const run = await get(path, signal);
    const made = JSON.stringify([run.cache, run.counters?.plans_made, run.budget_bytes]);
    if (this.polls % kPlansEvery === 0 || made !== this.made) {
      this.plans = (await get(`${path}/plans`, signal)).plans ?? [];
      this.made = made;
    }
    this.polls += 1;
    this.render(run);
  }

  // The daemon does not know the run.
  refuse(error) {
    setHidden(this.missing, false);
    setHidden(this.body, true);
    const text = error.status === 404
      ? "The daemon does not know this run, or no longer does." : error.message;
    this.missing.replaceChildren(h("p", null, text), h("p", { class: "note wrap" }, error.message));
  }

  render(run) {
    setHidden(this.missing, true);
    setHidden(this.body, false);
    this.title = run.name || run.id;
    this.renderHead(run);
    this.bar.update(run, run.margin_bytes);
    setText(this.pending, known(run.budget_pending_bytes)
      ? `A budget of ${bytes(run.budget_pending_bytes)} was asked for; it takes effect at the ` +
        "next step." : "");
    this.tiles.update(tilesOf(run));
    const steps = run.steps ?? [];
    this.allocator.update(steps);
    this.charts.peak.update(steps);
    this.charts.time.update(steps, run);
    this.charts.length.update(steps);
    this.slider.update(run, steps);
    this.map.update(this.plans, run);
    this.table.update(this.plans);
    this.learned.update(run.learned);
    this.counters.update(Object.entries(run.counters ?? {}).map(([name, value]) => (
      [kCounterNames[name] ?? name.replaceAll("_", " "), count(value)])));
    const budgets = [...(run.budgets ?? [])].map((change, index) => ({ ...change, index }))
      .reverse();
    reconcile(this.budgetRows, this.views.budgets, budgets, (change) => change.index,
      () => textRow(kBudgetColumns));
    reconcile(this.stepRows, this.views.steps, steps.slice(-kStepsShown).reverse(),
      (step) => step.step, () => textRow(kStepColumns));
    this.speak(run);
  }

  renderHead(run) {
    setText(this.heading, run.name || run.id);
    setText(this.state, stateText(run));
    setAttribute(this.state, "data-state", run.state);
    setAttribute(this.state, "data-status", run.status);
    setText(this.reason, run.state_reason);
    setText(this.command, run.command);
    const silent = (this.shell.now() - Date.parse(run.last_seen_at)) / 1000;
    const entries = [
      ["Run", run.id], ["Model", run.model], ["Device", run.device], ["Policy", run.policy],
      ["User", run.user], ["Process", known(run.pid) ? String(run.pid) : null],
      ["Group", run.group], ["Started", moment(run.started_at)],
      run.ended_at ? ["Ended", moment(run.ended_at)]
        : ["Heard from", Number.isNaN(silent) ? kDash : `${duration(silent)} ago`],
      ["Versions", Object.entries(run.versions ?? {}).map((one) => one.join(" ")).join(", ")],
    ];
    this.about.update(entries.filter(([, value]) => value));
  }

  // Says what an operator would want to hear, and nothing at each step.
  speak(run) {
    const now = { state: stateText(run), budget: run.budget_bytes, overruns: run.overruns };
    const before = this.before;
    this.before = now;
    if (!before) return;
    if (before.state !== now.state) announce(`The run is now ${now.state}`);
    else if (before.budget !== now.budget) announce(`The budget is now ${bytes(now.budget)}`);
    else if (before.overruns !== now.overruns) announce("The budget was overrun");
  }

  destroy() {
    this.slider.destroy();
    this.map.destroy();
    for (const chart of Object.values(this.charts)) chart.panel.destroy();
  }
}

function panel(title, note, ...content) {
  return h("section", { class: "panel" },
    h("div", { class: "panel-head" }, h("h2", null, title),
      note ? h("p", { class: "note" }, note) : null),
    ...content);
}

function tilesOf(run) {
  const calls = (run.cache?.hits ?? 0) + (run.cache?.misses ?? 0);
  return [
    ["Steps", stepsText(run)],
    ["Median step time", seconds(run.step_seconds_median)],
    ["Time recomputing", share(run.recomputed_share, 1)],
    ["Calls recomputed", share(run.recomputed_calls_share, 1)],
    ["Revocations", count(run.revocations), run.revocations > 0 ? "warn" : ""],
    ["Overruns", count(run.overruns), run.overruns > 0 ? "bad" : ""],
    ["Learning steps", count(run.learning_steps)],
    ["Plans cached", count(run.cache?.plans)],
    ["Cache hits", calls ? share(run.cache.hits / calls) : kDash],
    ["Margin", bytes(run.margin_bytes)],
    ["Budget set by", run.budget_source ?? kDash],
    ...(known(run.budget_fraction) ? [["Budget's place", ofRange(run.budget_fraction)]] : []),
    ...(run.host_peak_bytes > 0 ? [["Offloaded at most", bytes(run.host_peak_bytes)]] : []),
    ...(run.dropped_records > 0 ? [["Records dropped", count(run.dropped_records), "warn"]] : []),
  ];
}
