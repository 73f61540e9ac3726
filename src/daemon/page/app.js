// The page's frame: picks the view of the address, asks the daemon, says when it is gone.

import { ApiError, get, Poller } from "./api.js";
import { announce, h, setAttribute, setHidden, setText } from "./dom.js";
import { clock, duration } from "./format.js";
import { Overview } from "./overview.js";
import { RunView } from "./run.js";

const kVersionEvery = 20;  // polls

const element = (id) => document.getElementById(id);

class Shell {
  constructor() {
    this.version = null;
    this.polls = 0;
    this.view = null;
    this.status = { ok: true };
    this.poller = new Poller((signal) => this.turn(signal), (status) => this.report(status));
    element("alert-retry").addEventListener("click", () => this.refresh());
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault();  // the address belongs to the view
      element("main").focus();
    });
    window.addEventListener("hashchange", () => this.route(true));
    setInterval(() => this.tick(), 1000);
    this.route(false);
  }

  refresh() {
    this.poller.now();
  }

  // The daemon's clock may differ from this machine's; null until it was asked.
  now() {
    return Date.now() + (this.clockOffset ?? 0);
  }

  route(moved) {
    const match = /^#\/runs\/([^/]+)$/.exec(location.hash);
    this.view?.destroy();
    this.view = match ? new RunView(this, decode(match[1])) : new Overview(this);
    element("main").replaceChildren(this.view.element);
    this.retitle();
    window.scrollTo(0, 0);
    if (moved) this.view.heading?.focus({ preventScroll: true });
    this.refresh();
  }

  retitle() {
    const title = this.status.ok ? this.view.title : `(unreachable) ${this.view.title}`;
    if (document.title !== `${title} \u00b7 pudica`) document.title = `${title} \u00b7 pudica`;
  }

  async turn(signal) {
    if (this.version === null || this.polls % kVersionEvery === 0 || !this.status.ok) {
      const version = await get("/v1/version", signal);
      const restarted = this.version && this.version.pid !== version.pid;
      this.version = version;
      const started = Date.parse(version.started_at);
      if (!Number.isNaN(started)) {
        this.clockOffset = started + version.uptime_seconds * 1000 - Date.now();
      }
      if (restarted) announce("The daemon has restarted");
    }
    this.polls += 1;
    const view = this.view;
    try {
      await view.refresh(signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status >= 500) throw error;
      view.refuse?.(error);
    }
    if (view === this.view) this.retitle();
  }

  report(status) {
    const was = this.status.ok;
    this.status = status;
    element("main").classList.toggle("stale", !status.ok);
    if (status.ok) this.updated = new Date();
    if (status.ok && !was) announce("The daemon answers again");
    if (!status.ok) console.info(`pudica: ${status.error.message}`);
    this.retitle();
    this.tick();
  }

  // What changes with the clock alone.
  tick() {
    const gone = !this.status.ok;
    setHidden(element("alert"), !gone);
    setAttribute(element("link"), "data-state", gone ? "gone" : this.updated ? "live" : "waiting");
    if (gone) {
      // The alert is read out when it changes, so it has no seconds that count.
      const refused = this.status.error instanceof ApiError;
      setText(element("alert-text"), refused
        ? `The daemon cannot answer since ${clock(this.status.since)}: ${this.status.error.message}`
        : `Daemon unreachable since ${clock(this.status.since)}. What you see is from before.`);
      const left = Math.max(0, Math.ceil((this.status.nextAt - Date.now()) / 1000));
      setText(element("link-text"), left > 0 ? `trying again in ${left} s` : "trying");
    } else if (this.updated) {
      setText(element("link-text"), "live");
    }
    setText(element("link-clock"), !gone && this.updated ? `, ${clock(this.updated)}` : "");
    if (this.version) {
      const version = this.version;
      const uptime = (this.now() - Date.parse(version.started_at)) / 1000;
      setText(element("about"), `${version.name} ${version.version}, protocol ` +
        `${version.protocol}, process ${version.pid}, up ${duration(uptime)}`);
    }
  }
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

if (typeof Chart === "undefined") {
  element("main").append(h("p", { class: "notice" }, "Chart.js did not load."));
} else {
  new Shell();
}
