(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { svg, html, mib, bytes, seconds, volume, top, frame, stageIn, planMap } = charts;
  const ink = "var(--c5)";
  const alarm = "var(--bad)";

  // A chart, or why there is none.
  const chart = (id, drawable, missing, draw) => {
    const host = document.getElementById(id);
    if (!drawable) {
      html("p", "empty", host, missing);
      return;
    }
    stageIn(host, draw)();
  };

  const legend = (id, entries) => {
    const bar = html("div", "legend", document.getElementById(id));
    for (const [name, color, hollow] of entries) {
      const key = html("span", "key", bar);
      const dot = html("span", "dot", key);
      dot.style.background = hollow ? "none" : color;
      dot.style.boxShadow = `inset 0 0 0 1.5px ${color}`;
      key.append(name);
    }
  };

  const describe = (k) => {
    const lines = [`step ${data.step[k]}, shape ${data.shape[k]}`,
      "measured " + bytes(data.peak[k])];
    if (data.predicted[k]) lines.push("predicted " + bytes(data.predicted[k]));
    if (data.budget[k]) lines.push("budget " + bytes(data.budget[k]));
    if (data.seconds[k]) lines.push(seconds(data.seconds[k]));
    if (data.revocations[k]) lines.push(`${data.revocations[k]} layers revoked`);
    if (data.overrun[k]) lines.push("overrun");
    if (data.learning[k]) lines.push("learning");
    return lines.join("\n");
  };

  const steps = data.step.length;
  const first = steps ? data.step[0] : 0;
  const last = steps ? data.step[steps - 1] : 0;
  const predicted = data.predicted.some((value) => value > 0);

  if (steps) {
    legend("memory", [["measured", ink], ...(predicted ? [["predicted", "var(--c4)", true]] : []),
      ...(data.revocations.some(Boolean) ? [["revoked", alarm]] : [])]);
  }
  chart("memory", steps, "No step ended.", (stage, show, hide) => {
    const high = Math.max(top(data.peak), top(data.budget), top(data.predicted)) * 1.05;
    const { root, sx, sy, box } = frame(stage,
      { name: "step", low: first, high: Math.max(first + 1, last), text: String },
      { name: "peak memory, MiB", low: 0, high: high / mib, text: (v) => String(+v.toFixed(2)) });
    const points = data.peak.map((peak, k) =>
      sx(data.step[k]).toFixed(1) + "," + sy(peak / mib).toFixed(1));
    svg("polyline", { points: points.join(" "), fill: "none", stroke: ink, "stroke-width": 2,
      "stroke-linejoin": "round" }, root);
    data.predicted.forEach((value, k) => {
      if (!value) return;
      svg("circle", { cx: sx(data.step[k]).toFixed(1), cy: sy(value / mib).toFixed(1), r: 2.6,
        fill: "none", stroke: "var(--c4)", "stroke-width": 1.3 }, root);
    });
    data.revocations.forEach((count, k) => {
      if (!count && !data.overrun[k]) return;
      svg("circle", { cx: sx(data.step[k]).toFixed(1), cy: sy(data.peak[k] / mib).toFixed(1),
        r: 4, fill: alarm }, root);
    });
    // One piece of line for each stretch of one budget.
    for (let from = 0, to; from < steps; from = to) {
      for (to = from + 1; to < steps && data.budget[to] === data.budget[from];) ++to;
      if (!data.budget[from]) continue;
      const y = sy(data.budget[from] / mib);
      const right = to < steps ? sx(data.step[to]) : box.right;
      svg("line", { class: "budget", x1: sx(data.step[from]), x2: right, y1: y, y2: y }, root);
      if (right - sx(data.step[from]) > 130) {
        svg("text", { class: "budget-name", x: right, y: y - 6, "text-anchor": "end" }, root,
          "budget " + bytes(data.budget[from]));
      }
    }
    root.onpointermove = (event) => {
      const at = root.getBoundingClientRect();
      const scale = root.viewBox.baseVal.width / at.width;
      const share = ((event.clientX - at.left) * scale - box.left) / (box.right - box.left);
      const step = first + Math.max(0, Math.min(1, share)) * (last - first);
      let near = 0;
      data.step.forEach((value, k) => {
        if (Math.abs(value - step) < Math.abs(data.step[near] - step)) near = k;
      });
      show(event, describe(near));
    };
    root.onpointerleave = hide;
    return root;
  });

  // Dots with a tip each.
  const dots = (root, list, sx, sy, show, hide) => {
    for (const { x, y, k } of list) {
      const color = data.overrun[k] || data.revocations[k] ? alarm : ink;
      const dot = svg("circle", { cx: sx(x).toFixed(1), cy: sy(y).toFixed(1), r: 3.4,
        fill: data.learning[k] ? "none" : color, stroke: color, "fill-opacity": 0.65 }, root);
      dot.onpointerenter = (event) => show(event, describe(k));
      dot.onpointerleave = hide;
    }
  };

  chart("prediction", predicted, "No step of this run was predicted.", (stage, show, hide) => {
    const list = [];
    data.predicted.forEach((value, k) => {
      if (value) list.push({ x: value / mib, y: data.peak[k] / mib, k });
    });
    const all = list.flatMap(({ x, y }) => [x, y]);
    const low = Math.min(...all);
    const high = Math.max(...all);
    const pad = Math.max((high - low) * 0.06, high * 0.005);
    const axis = (name) => ({ name, low: Math.max(0, low - pad), high: high + pad,
      text: (v) => String(+v.toFixed(2)) });
    const { root, sx, sy } = frame(stage, axis("predicted, MiB"), axis("measured, MiB"));
    svg("line", { class: "budget", x1: sx(low - pad), y1: sy(low - pad), x2: sx(high + pad),
      y2: sy(high + pad), opacity: 0.4 }, root);
    dots(root, list, sx, sy, show, hide);
    return root;
  });

  chart("time", data.seconds.some(Boolean), "No step was timed.", (stage, show, hide) => {
    const list = [];
    data.seconds.forEach((value, k) => {
      if (value) list.push({ x: volume(data.shape[k]), y: value, k });
    });
    const { root, sx, sy } = frame(stage,
      { name: "tokens of the padded batch", low: 0, high: top(list.map(({ x }) => x)) * 1.03,
        text: (v) => v.toLocaleString("en") },
      { name: "seconds", low: 0, high: top(list.map(({ y }) => y)) * 1.05,
        text: (v) => String(+v.toFixed(3)) });
    dots(root, list, sx, sy, show, hide);
    return root;
  });

  const plans = document.getElementById("plans");
  if (data.plans.length) planMap(plans, [{ name: data.name, plans: data.plans }]);
  else html("p", "empty", plans, "This run holds no plan.");
})();
