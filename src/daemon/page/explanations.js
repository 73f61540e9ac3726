// Why each layer of a cached plan is as it is, in the words of `pudica explain`. Asked for when
// somebody looks at the plan, one question at a time: of those that queue up only the last counts.

import { get } from "./api.js";

const nameOf = (entry) => `${entry.key} ${entry.plan.id}`;

export class Explanations {
  // `arrived` is called when an answer, or the refusal of one, has come.
  constructor(arrived) {
    this.arrived = arrived;
    this.answers = new Map();  // by plan; null: no answer is to be had
    this.wanted = null;
    this.busy = false;
    this.budget = null;
    this.round = 0;
  }

  // Forgets what is about another budget or about plans that there are no more, and refusals.
  keep(plans, budget) {
    const names = new Set(budget === this.budget ? plans.map(nameOf) : []);
    for (const [name, answer] of this.answers) {
      if (!names.has(name) || answer === null) this.answers.delete(name);
    }
    if (budget !== this.budget) this.round += 1;
    this.budget = budget;
  }

  // {text} of the layer, {pending: true} while it is asked for, null where nothing is known but the
  // plan's own reason.
  why(run, entry, row, mode) {
    if (run.has_model === false) return null;
    const plan = nameOf(entry);
    if (!this.answers.has(plan)) {
      this.wanted = { run, plan, key: entry.key };
      this.ask();
      return { pending: true };
    }
    const layer = this.answers.get(plan)?.layers?.[row];
    // An answer about other modes is one about another plan.
    return layer?.mode === mode && layer.why ? { text: layer.why } : null;
  }

  async ask() {
    if (this.busy || this.wanted === null) return;
    const { run, plan, key } = this.wanted;
    const round = this.round;
    this.wanted = null;
    this.busy = true;
    let answer = null;
    try {
      answer = await get(
        `/v1/runs/${encodeURIComponent(run.id)}/explain?shape=${encodeURIComponent(key)}`);
    } catch (error) {
      console.info(`pudica: ${error.message}`);
    }
    this.busy = false;
    if (round === this.round) {
      this.answers.set(plan, answer);
      this.arrived();
    }
    this.ask();
  }
}
