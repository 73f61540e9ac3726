// All runs with their budgets, the groups they share, the models learned so far.

import { ApiError, get } from "./api.js";
import { budgetBar, budgetLegend } from "./budget_bar.js";
import {
  announce, h, reconcile, setAttribute, setHidden, setStyle, setText, table, textRow,
} from "./dom.js";
import {
  bytes, count, kDash, known, moment, plural, recomputedShares, seconds, stateText, stepsDone,
  stepsText,
} from "./format.js";
import { welcome } from "./welcome.js";

const kFilterFrom = 7;  // fewer runs are found at a glance
const kModelsEvery = 5;  // polls

export const runHash = (id) => `#/runs/${encodeURIComponent(id)}`;

function fact(name) {
  const value = h("span");
  const joint = h("span", { class: "unseen" });
  const more = h("span", { class: "fact-more" });
  const element = h("div", null, h("dt", null, name), h("dd", null, value, joint, more));
  return {
    element,
    set(text, kind = "") {
      setText(value, text);
      setAttribute(element, "class", kind || null);
    },
    // A second line; `between` is read out only.
    add(between, text) {
      setText(joint, text ? between : "");
      setText(more, text);
    },
  };
}

function runCard(first) {
  const link = h("a", { href: runHash(first.id) });
  const state = h("span", { class: "state" });
  const reason = h("p", { class: "note run-reason" });
  const origin = h("p", { class: "note" });
  const bar = budgetBar();
  const step = fact("Steps");
  const progress = h("span");
  const progressTrack = h("span", { class: "progress", "aria-hidden": "true" }, progress);
  step.element.append(progressTrack);
  const [time, recomputed, revocations, overruns] =
    ["Step time", "Recomputed", "Revocations", "Overruns"].map(fact);
  const facts = [step, time, recomputed, revocations, overruns];
  const element = h("li", { class: "run-card", "data-run": first.id },
    h("div", { class: "run-who" }, h("div", { class: "run-name" }, link, state), reason, origin),
    bar.element,
    h("dl", { class: "facts" }, ...facts.map((one) => one.element)));
  let before = first.state;

  return {
    element,
    update(run) {
      setText(link, run.name || run.id);
      setText(state, stateText(run));
      setAttribute(state, "data-state", run.state);
      setAttribute(state, "data-status", run.status);
      setText(reason, run.state_reason);
      setHidden(reason, !run.state_reason);
      setText(origin, [run.id, run.model, run.device, run.user, run.group && `group ${run.group}`]
        .filter(Boolean).join(" \u00b7 "));
      bar.update(run, run.margin_bytes);
      step.set(stepsText(run));
      setHidden(progressTrack, !run.steps_total);
      const done = run.steps_total ? Math.min(1, stepsDone(run) / run.steps_total) : 0;
      setStyle(progress, "width", `${(done * 100).toFixed(1)}%`);
      time.set(seconds(run.step_seconds_median));
      const [ofTime, ofCalls] = recomputedShares(run);
      recomputed.set(ofTime ?? kDash);
      recomputed.add(" of the time, ", ofCalls ? `${ofCalls} of calls` : "");
      revocations.set(count(run.revocations), run.revocations > 0 ? "warn" : "");
      overruns.set(count(run.overruns), run.overruns > 0 ? "bad" : "");
      if (run.state !== before) announce(`${run.name}: ${stateText(run)}`);
      before = run.state;
    },
  };
}

// Of a run in a group: a lost one is not in the list of runs, yet its bytes stay counted.
const nameOf = (member, names) => member.name ?? names.get(member.id) ?? member.id;

function memberText(member, names) {
  const name = nameOf(member, names);
  const text = name === member.id ? name : `${name} (${member.id})`;
  return member.lost ? `${text}, silent` : text;
}

function groupView(names) {
  const title = h("h3");
  const totals = h("span", { class: "note" });
  const track = h("div", { class: "group-track" });
  const rows = h("tbody");
  const rowViews = new Map();
  const shares = new Map();
  const shareView = (first) => {
    const element = h("a", { href: runHash(first.id) });
    return {
      element,
      update(entry) {
        setText(element, `${nameOf(entry, names)} ${bytes(entry.budget_bytes)}`);
        setAttribute(element, "title", `${memberText(entry, names)} ${bytes(entry.budget_bytes)}`);
        setStyle(element, "width", `${entry.percent.toFixed(2)}%`);
      },
    };
  };
  const columns = [
    ["Run", "", (run) => memberText(run, names)],
    ["May use now", "number", (run) => bytes(run.budget_bytes)],
    ["Its share", "number", (run) => bytes(run.share_bytes)],
    ["Could use", "number", (run) => bytes(run.need_bytes)],
    ["Under way", "number", (run) => bytes(run.pending_bytes)],
  ];
  return {
    element: h("div", { class: "group" },
      h("div", { class: "panel-head" }, title, totals), track,
      table({ label: "Runs of the group", head: columns, body: rows })),
    update(group) {
      setText(title, group.name);
      setText(totals, totalsText(group));
      const runs = (group.runs ?? []).map((run) => (
        { ...run, percent: group.total_bytes > 0 ? run.budget_bytes / group.total_bytes * 100 : 0 }
      ));
      reconcile(track, shares, runs, (run) => run.id, shareView);
      reconcile(rows, rowViews, runs, (run) => run.id, () => textRow(columns));
    },
  };
}

// A group that runs name and nobody gave a total yet has none.
function totalsText(group) {
  const assigned = bytes(group.assigned_bytes);
  if (!known(group.total_bytes)) return `${assigned} assigned, no total is set`;
  const free = group.total_bytes - group.assigned_bytes;
  return `${assigned} of ${bytes(group.total_bytes)} assigned, ${bytes(free)} free`;
}

const kModelColumns = [
  ["Fingerprint", "mono wrap", (model) => model.fingerprint],
  ["Recorded steps", "number", (model) => count(model.recorded_steps)],
  ["Shapes", "number", (model) => count(model.distinct_shapes)],
  ["Runs", "number", (model) => count(model.runs)],
  ["Size", "number", (model) => bytes(model.bytes)],
  ["Updated", "", (model) => moment(model.updated_at)],
];

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

export class Overview {
  constructor(shell) {
    this.shell = shell;
    this.title = "Runs";
    this.polls = 0;
    this.models = [];
    this.ended = null;  // runs kept; asked for where no run is live
    this.names = new Map();
    this.views = { runs: new Map(), groups: new Map(), models: new Map() };
    this.build();
  }

  build() {
    this.tally = h("span", { class: "tally" });
    this.filter = h("input", {
      type: "search", placeholder: "Filter by name, user, model", "aria-label": "Filter runs",
      on: { input: () => this.render() },
    });
    this.all = h("input", { type: "checkbox", on: { change: () => this.toggleAll() } });
    this.all.checked = stored("pudica.all") === "true";
    this.heading = h("h1", { tabindex: "-1" }, "Runs ", this.tally);
    this.runs = h("ul", { class: "runs", "aria-label": "Runs" });
    this.legend = budgetLegend();
    this.welcome = welcome(() => this.all.click());
    this.groups = h("div", { class: "groups" });
    this.groupsPanel = h("section", { class: "panel" }, h("div", { class: "panel-head" },
      h("h2", null, "Groups"),
      h("p", { class: "note" }, "Runs that share one budget; what one does not use is lent.")),
    this.groups);
    const body = h("tbody");
    this.modelRows = body;
    this.modelsPanel = h("section", { class: "panel" }, h("div", { class: "panel-head" },
      h("h2", null, "Learned models"),
      h("p", { class: "note" }, "A run of a model known here starts without learning.")),
    table({ label: "Learned models", head: kModelColumns, body }));
    this.nothing = h("p", { class: "notice none" });
    this.element = h("div", { class: "overview" },
      h("div", { class: "toolbar" }, this.heading, this.filter,
        h("label", { class: "check" }, this.all, "Ended runs too")),
      this.runs, this.nothing, this.welcome.element,
      h("div", { class: "side" }, this.legend, this.groupsPanel, this.modelsPanel));
    for (const part of [this.filter, this.nothing, this.welcome.element, this.legend,
      this.groupsPanel, this.modelsPanel]) part.hidden = true;
  }

  toggleAll() {
    try {
      localStorage.setItem("pudica.all", String(this.all.checked));
    } catch {
      // It holds until the page is closed.
    }
    this.shell.refresh();
  }

  async refresh(signal) {
    const path = this.all.checked ? "/v1/runs?all=true" : "/v1/runs";
    const answer = await get(path, signal);
    await this.countEnded(answer, signal);
    this.answer = answer;
    this.polls += 1;
    this.render();
    if (this.polls % kModelsEvery !== 1) return;
    try {
      this.models = (await get("/v1/models", signal)).models ?? [];
      this.render();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;  // runs are shown without the models
    }
  }

  async countEnded(answer, signal) {
    if (answer.runs?.length > 0 || this.all.checked) {
      this.ended = null;
    } else if (this.ended === null || this.polls % kModelsEvery === 0) {
      this.ended = (await get("/v1/runs?all=true", signal)).runs.length;
    }
  }

  render() {
    if (!this.answer) return;
    const runs = this.answer.runs ?? [];
    const words = this.filter.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const shown = runs.filter((run) => {
      const text = `${run.name} ${run.id} ${run.user} ${run.model} ${run.group} ${run.device} ` +
        stateText(run);
      return words.every((word) => text.toLowerCase().includes(word));
    });
    this.names.clear();
    for (const run of runs) this.names.set(run.id, run.name);
    reconcile(this.runs, this.views.runs, shown, (run) => run.id, runCard);
    setText(this.tally, tallyOf(runs));
    setHidden(this.filter, runs.length < kFilterFrom && words.length === 0);
    setHidden(this.nothing, runs.length === 0 || shown.length > 0);
    setText(this.nothing, `None of ${plural(runs.length, "run")} matches.`);
    setHidden(this.legend, runs.length === 0);
    setHidden(this.welcome.element, runs.length > 0);
    this.welcome.update(this.shell.version, this.ended ?? 0);
    const groups = this.answer.groups ?? [];
    setHidden(this.groupsPanel, groups.length === 0);
    reconcile(this.groups, this.views.groups, groups, (group) => group.name,
      () => groupView(this.names));
    setHidden(this.modelsPanel, this.models.length === 0);
    reconcile(this.modelRows, this.views.models, this.models, (model) => model.fingerprint,
      () => textRow(kModelColumns));
  }

  destroy() {}
}

function tallyOf(runs) {
  if (runs.length === 0) return "";
  const counts = new Map();
  for (const run of runs) counts.set(run.state, (counts.get(run.state) ?? 0) + 1);
  const order = ["planning", "learning", "standing_down", "registered", "lost", "ended"];
  const parts = order.filter((state) => counts.has(state))
    .map((state) => `${counts.get(state)} ${state.replace("_", " ")}`);
  return parts.join(", ");
}
