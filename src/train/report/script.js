(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { svg, html, mib, bytes, seconds, volume, top, frame, stageIn, planMap } = charts;
  const color = (index) => `var(--c${data.policies[index].color})`;

  const usual = ["none", "none (metered)", "full", "static", "mimose", "pudica"];
  const shown = new Set();
  data.policies.forEach((policy, i) => {
    const plain = policy.name.split(":")[0];
    if (data.policies.length <= 5 || usual.includes(plain)) shown.add(i);
  });
  const redraws = [];
  const redraw = () => redraws.forEach((draw) => draw());

  const legend = (host) => {
    const bar = html("div", "legend", host);
    data.policies.forEach((policy, i) => {
      const button = html("button", "", bar);
      button.type = "button";
      html("span", "dot", button).style.background = color(i);
      button.append(policy.name);
      button.onclick = () => { shown.has(i) ? shown.delete(i) : shown.add(i); redraw(); };
      redraws.push(() => button.setAttribute("aria-pressed", shown.has(i)));
    });
  };

  // A chart that is drawn again when its policies or its width change.
  const chart = (id, draw) => {
    const host = document.getElementById(id);
    if (!data.policies.some((policy) => policy.shape.length)) {
      html("p", "empty", host, "No step ended.");
      return;
    }
    legend(host);
    redraws.push(stageIn(host, draw));
  };

  const visible = () => data.policies.map((policy, i) => [policy, i]).filter(([, i]) => shown.has(i));

  chart("memory", (stage, show, hide) => {
    const list = visible();
    const high = Math.max(...data.budgets.map((one) => one.budget_bytes), ...list.map(([policy]) => top(policy.peak))) * 1.05;
    const steps = top(list.map(([policy]) => top(policy.step)));
    const { root, sx, sy, box } = frame(stage,
      { name: "step", low: 0, high: Math.max(1, steps), text: String },
      { name: "peak memory, MiB", low: 0, high: high / mib, text: (v) => String(+v.toFixed(2)) });
    for (const [policy, i] of list) {
      if (!top(policy.peak)) continue;  // it was not metered
      const points = policy.peak.map((peak, k) =>
        sx(policy.step[k]).toFixed(1) + "," + sy(peak / mib).toFixed(1));
      const bold = policy.name.startsWith("pudica");
      svg("polyline", { points: points.join(" "), fill: "none", stroke: color(i),
        "stroke-width": bold ? 2.4 : 1.4, "stroke-linejoin": "round",
        opacity: bold ? 1 : 0.8 }, root);
    }
    // One piece of line for each budget, as long as it held.
    data.budgets.forEach((one, k) => {
      if (!(one.budget_bytes > 0)) return;
      const next = data.budgets[k + 1];
      const [from, to] = [k > 0 ? sx(one.step) : box.left, next ? sx(next.step) : box.right];
      const y = sy(one.budget_bytes / mib);
      svg("line", { class: "budget", x1: from, x2: to, y1: y, y2: y }, root);
      if (to - from < 90 && data.budgets.length > 1) return;  // no room for its name
      svg("text", { class: "budget-name", x: to, y: y - 6, "text-anchor": "end" }, root,
        "budget " + bytes(one.budget_bytes));
    });
    root.onpointermove = (event) => {
      const at = root.getBoundingClientRect();
      const scale = root.viewBox.baseVal.width / at.width;
      const share = ((event.clientX - at.left) * scale - box.left) / (box.right - box.left);
      const step = Math.round(Math.max(0, Math.min(1, share)) * steps);
      const lines = [];
      for (const [policy] of list) {
        const k = policy.step.indexOf(step);
        if (k < 0 || !policy.peak[k]) continue;
        if (!lines.length) lines.push(`step ${step}, shape ${policy.shape[k]}`);
        lines.push(`${policy.name}: ${bytes(policy.peak[k])}`);
      }
      lines.length ? show(event, lines.join("\n")) : hide();
    };
    root.onpointerleave = hide;
    return root;
  });

  chart("time", (stage, show, hide) => {
    const list = visible();
    const points = [];
    for (const [policy, i] of list) {
      policy.shape.forEach((shape, k) => points.push({ x: volume(shape), y: policy.seconds[k],
        i, learning: policy.learning[k], text: `${policy.name}, step ${policy.step[k]}\n` +
          `shape ${shape}: ${seconds(policy.seconds[k])}` }));
    }
    const { root, sx, sy } = frame(stage,
      { name: "tokens of the padded batch", low: 0, high: top(points.map((p) => p.x)) * 1.03,
        text: (v) => v.toLocaleString("en") },
      { name: "seconds", low: 0, high: top(points.map((p) => p.y)) * 1.05,
        text: (v) => String(+v.toFixed(3)) });
    for (const point of points) {
      const dot = svg("circle", { cx: sx(point.x).toFixed(1), cy: sy(point.y).toFixed(1), r: 3.2,
        fill: point.learning ? "none" : color(point.i), stroke: color(point.i),
        "fill-opacity": 0.65 }, root);
      dot.onpointerenter = (event) => show(event, point.text);
      dot.onpointerleave = hide;
    }
    return root;
  });

  const owners = data.policies.filter((policy) => policy.plans && policy.plans.length);
  const plans = document.getElementById("plans");
  if (owners.length) planMap(plans, owners);
  else html("p", "empty", plans, "No policy of this run made plans.");
  redraw();
})();
