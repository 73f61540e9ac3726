"use strict";
// What the charts of all reports share: drawing, units, axes, the map of plans.
const charts = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const mib = 1024 * 1024;

  const svg = (name, attributes, parent, text) => {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  };
  const html = (name, className, parent, text) => {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  };

  const bytes = (value) =>
    value >= 1024 * mib ? (value / mib / 1024).toFixed(2) + " GiB"
      : (value / mib).toFixed(value < 100 * mib ? 1 : 0) + " MiB";
  const seconds = (value) =>
    value < 1 ? (value * 1e3).toFixed(value < 0.1 ? 1 : 0) + " ms" : value.toFixed(2) + " s";
  const tokens = (shape) => shape.split("x").slice(1).reduce((sum, n) => sum + Number(n), 0);
  const volume = (shape) => tokens(shape) * Number(shape.split("x")[0]);

  // Round steps of an axis from 0 to about `top`.
  const ticks = (low, high, count) => {
    const raw = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const list = [];
    for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) list.push(v);
    return list;
  };

  const tipFor = (host) => {
    const tip = html("div", "tip", host);
    return {
      show(x, y, text) {
        tip.textContent = text;
        tip.style.opacity = 1;
        const room = host.clientWidth - tip.offsetWidth;
        tip.style.left = Math.max(0, Math.min(room, x + 14)) + "px";
        tip.style.top = Math.max(0, y - tip.offsetHeight - 12) + "px";
      },
      hide() { tip.style.opacity = 0; },
    };
  };

  // Axes with names; returns scales from data to pixels and the drawing.
  const frame = (host, x, y) => {
    const width = Math.max(300, host.clientWidth);
    const height = Math.round(Math.min(380, Math.max(230, width * 0.42)));
    const box = { left: 58, right: width - 12, top: 16, bottom: height - 40 };
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    root.setAttribute("aria-label", `${y.name} over ${x.name}`);
    const sx = (v) => box.left + (v - x.low) / (x.high - x.low || 1) * (box.right - box.left);
    const sy = (v) => box.bottom - (v - y.low) / (y.high - y.low || 1) * (box.bottom - box.top);
    for (const v of ticks(y.low, y.high, 5)) {
      svg("line", { class: "grid", x1: box.left, x2: box.right, y1: sy(v), y2: sy(v) }, root);
      svg("text", { x: box.left - 8, y: sy(v) + 4, "text-anchor": "end" }, root, y.text(v));
    }
    for (const v of ticks(x.low, x.high, width < 520 ? 4 : 8)) {
      if (!Number.isInteger(v)) continue;
      svg("text", { x: sx(v), y: box.bottom + 18, "text-anchor": "middle" }, root, x.text(v));
    }
    svg("text", { x: box.right, y: height - 4, "text-anchor": "end" }, root, x.name);
    svg("text", { x: 0, y: 8 }, root, y.name);
    return { root, sx, sy, box };
  };

  const top = (list) => list.reduce((most, value) => Math.max(most, value), 0);

  // In a frame of its own: what is drawn changes the height, which is observed as well.
  const onNewWidth = (node, draw) => {
    let width = node.clientWidth;
    new ResizeObserver(() => requestAnimationFrame(() => {
      if (Math.abs(node.clientWidth - width) < 2) return;
      width = node.clientWidth;
      draw();
    })).observe(node);
  };

  // A place that draws itself again when its width changes; returns what draws it, to be called
  // once. `draw` gets the place and two functions: show(event, text) and hide(), of a tip.
  const stageIn = (host, draw) => {
    const stage = html("div", "", host);
    const tip = tipFor(host);
    const again = () => {
      tip.hide();
      stage.replaceChildren(draw(stage, (event, text) => {
        const at = host.getBoundingClientRect();
        tip.show(event.clientX - at.left, event.clientY - at.top, text);
      }, () => tip.hide()));
    };
    onNewWidth(stage, again);
    return again;
  };

  const modeColor = (mode) => {
    const [kind, step] = mode.split(":");
    const base = `var(--${kind})`;
    // Deeper steps of a menu drop more: nearer to full.
    return kind === "selective"
      ? `color-mix(in srgb, ${base}, var(--full) ${Math.min(75, (Number(step) || 0) * 18)}%)` : base;
  };

  // The modes of each layer over batch shapes, of one of several owners `{name, plans}` at a time.
  const planMap = (host, owners) => {
    let chosen = owners.find((policy) => policy.name.startsWith("pudica")) || owners[0];
    const bar = html("div", owners.length > 1 ? "legend" : "", host);
    const keys = html("div", "legend", host);
    const stage = html("div", "", host);
    const tip = tipFor(host);

    const draw = () => {
      tip.hide();
      [...bar.children].forEach((button, i) =>
        button.setAttribute("aria-pressed", owners[i] === chosen));
      const plans = [...chosen.plans].sort((a, b) => volume(a.shape) - volume(b.shape));
      const layers = top(plans.map((plan) => plan.modes.length));
      const modes = [...new Set(plans.flatMap((plan) => plan.modes))].sort();
      keys.replaceChildren();
      for (const mode of modes) {
        const key = html("span", "key", keys);
        html("span", "dot square", key).style.background = modeColor(mode);
        key.append(mode);
      }
      const width = Math.max(300, stage.clientWidth);
      const row = Math.max(8, Math.min(26, 360 / Math.max(1, layers)));
      const box = { left: 58, top: 6, right: width - 12 };
      const height = box.top + row * layers + 36;
      const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
        "aria-label": "modes of each layer over batch shapes" });
      const cell = (box.right - box.left) / plans.length;
      for (let layer = 0; layer < layers; ++layer) {
        const y = box.top + (layers - 1 - layer) * row;
        const every = row < 14 ? 4 : 1;
        if (layer % every === 0) {
          svg("text", { x: box.left - 8, y: y + row / 2 + 4, "text-anchor": "end" }, root,
            layer === 0 ? "layer 0" : String(layer));
        }
        // One rectangle for neighbours of one mode.
        for (let first = 0, last; first < plans.length; first = last) {
          const mode = plans[first].modes[layer];
          for (last = first + 1; last < plans.length && plans[last].modes[layer] === mode;) ++last;
          if (mode === undefined) continue;
          const rect = svg("rect", { x: box.left + first * cell, y: y + 0.5,
            width: Math.max(0.5, (last - first) * cell - (cell > 6 ? 1 : 0)),
            height: row - 1, rx: Math.min(2, cell / 4) }, root);
          rect.style.fill = modeColor(mode);
        }
      }
      const every = Math.ceil(plans.length / (width < 520 ? 4 : 10));
      plans.forEach((plan, i) => {
        if (i % every !== 0) return;
        svg("text", { x: box.left + (i + 0.5) * cell, y: box.top + layers * row + 16,
          "text-anchor": "middle" }, root, plan.shape);
      });
      svg("text", { x: box.right, y: height - 2, "text-anchor": "end" }, root,
        "batch shape, short to long");
      root.onpointermove = (event) => {
        const at = root.getBoundingClientRect();
        const x = (event.clientX - at.left) * width / at.width - box.left;
        const plan = plans[Math.floor(x / cell)];
        if (!plan || x < 0) { tip.hide(); return; }
        const lines = [`shape ${plan.shape}`];
        if (plan.predicted_bytes) lines.push("predicted " + bytes(plan.predicted_bytes));
        if (plan.measured_bytes) lines.push("measured " + bytes(plan.measured_bytes));
        for (const mode of modes) {
          const count = plan.modes.filter((m) => m === mode).length;
          if (count) lines.push(`${count} layers ${mode}`);
        }
        const hostAt = host.getBoundingClientRect();
        tip.show(event.clientX - hostAt.left, event.clientY - hostAt.top, lines.join("\n"));
      };
      root.onpointerleave = () => tip.hide();
      stage.replaceChildren(root);
    };
    for (const policy of owners.length > 1 ? owners : []) {
      const button = html("button", "", bar, policy.name);
      button.type = "button";
      button.onclick = () => { chosen = policy; draw(); };
    }
    draw();
    onNewWidth(stage, draw);
  };

  return { svg, html, mib, bytes, seconds, volume, top, frame, stageIn, planMap };
})();
