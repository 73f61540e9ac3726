// Asking the daemon, about once a second; more rarely while it does not answer or nobody looks.

const kTimeoutMs = 10000;
const kIntervalMs = 1000;
const kLongestPauseMs = 15000;

// What the daemon answered with a status of 400 and above.
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export async function get(path, signal) {
  const limit = AbortSignal.timeout(kTimeoutMs);
  const response = await fetch(path, {
    signal: signal ? anyOf(signal, limit) : limit,
    cache: "no-store",
    headers: { Accept: "application/json" },
  });
  const text = await response.text();
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    throw new Error(`${path}: the answer is not JSON`);
  }
  if (!response.ok) {
    const error = body.error ?? {};
    throw new ApiError(response.status, error.code ?? "", error.message ?? response.statusText);
  }
  return body;
}

function anyOf(first, second) {
  if (AbortSignal.any) return AbortSignal.any([first, second]);
  const controller = new AbortController();
  for (const signal of [first, second]) {
    if (signal.aborted) controller.abort(signal.reason);
    signal.addEventListener("abort", () => controller.abort(signal.reason), { once: true });
  }
  return controller.signal;
}

// Runs `task(signal)` again and again, one at a time. `report` hears {ok: true} or
// {ok: false, error, since, nextAt} after each.
export class Poller {
  constructor(task, report) {
    this.task = task;
    this.report = report;
    this.failures = 0;
    this.since = null;
    this.timer = null;
    this.round = 0;
    this.controller = null;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.now();
    });
  }

  // Asks at once; an answer that is still under way no longer counts.
  now() {
    clearTimeout(this.timer);
    this.controller?.abort();
    this.round += 1;
    this.turn(this.round);
  }

  async turn(round) {
    this.controller = new AbortController();
    let error = null;
    try {
      await this.task(this.controller.signal);
    } catch (caught) {
      error = caught;
    }
    if (round !== this.round) return;
    const delay = this.settle(error);
    this.timer = setTimeout(() => {
      if (document.hidden) return;  // visibilitychange starts it again
      this.turn(round);
    }, delay);
  }

  settle(error) {
    if (error === null) {
      this.failures = 0;
      this.since = null;
      this.report({ ok: true });
      return kIntervalMs;
    }
    this.since ??= new Date();
    const delay = Math.min(kLongestPauseMs, kIntervalMs * 2 ** Math.min(this.failures, 6));
    this.failures += 1;
    this.report({ ok: false, error, since: this.since, nextAt: Date.now() + delay });
    return delay;
  }
}
