"""Expressions that find what is hard to read or does not fit, for a page in a browser."""

# Texts with less than 4.5 : 1 against what is painted behind them: ["ratio text", ...].
CONTRASTS = r"""(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = rgba(getComputedStyle(one).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !element.checkVisibility()) continue;
    if (element.closest(".unseen, .map-cell, .skip, noscript")) continue;
    const text = light(rgba(getComputedStyle(element).color));
    const ground = light(behind(element));
    const ratio = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${node.textContent.trim().slice(0, 40)}`);
  }
  return found;
})()"""

# Controls, regions, figures and canvases that a screen reader would have no name for.
NAMELESS = r"""(() => {
  const textOf = (ids) => ids.split(/\s+/).map((id) => document.getElementById(id)?.textContent)
    .join(" ").trim();
  const nameOf = (one) => {
    const by = one.getAttribute("aria-labelledby");
    if (by) return textOf(by);
    const label = one.getAttribute("aria-label") ?? one.getAttribute("alt");
    if (label) return label.trim();
    if (one.labels?.length) return [...one.labels].map((each) => each.textContent).join(" ").trim();
    const takesText = one.matches("a, button, summary, [role=gridcell]");
    return takesText || one.matches("[tabindex='0']:not([role])") ? one.textContent.trim() : "";
  };
  const wanted = "a[href], button, input, select, summary, [role=region], [role=grid], [role=img],"
    + " [tabindex='0'], canvas, img";
  return [...document.querySelectorAll(wanted)]
    .filter((one) => one.checkVisibility() && !one.closest("[aria-hidden=true], .unseen"))
    .filter((one) => !(one.tagName === "IMG" && one.getAttribute("alt") === ""))
    .filter((one) => nameOf(one) === "")
    .map((one) => one.outerHTML.slice(0, 160));
})()"""

# What sticks out of the window on the right, other than inside a box that scrolls by itself.
WIDE_CONTENT = r"""(() => {
  const scrolls = (element) => {
    for (let one = element.parentElement; one; one = one.parentElement) {
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(one).overflowX)) return true;
    }
    return false;
  };
  return [...document.querySelectorAll("body *")]
    .filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 0.5)
    .filter((one) => !scrolls(one))
    .map((one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 30)}`);
})()"""

# Texts that reach beyond the box of their own, over what stands beside it.
SPILLED = r"""(() => [...document.querySelectorAll("dd, dt, th, td")]
  .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1)
  .filter((one) => getComputedStyle(one).overflowX === "visible")
  .map((one) => one.textContent.slice(0, 60)))()"""

# The mode whose colour most pixels of a plan map's cell have, by column and row. Takes the numbers
# of columns and rows.
PAINTED = r"""(() => {
  const [columns, rows] = [%d, %d];
  const canvas = document.querySelector('.map-grid canvas');
  const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const style = getComputedStyle(document.documentElement);
  const modes = {};
  for (const mode of ['keep', 'selective', 'offload', 'full']) {
    const hex = style.getPropertyValue(`--mode-${mode}`).trim();
    modes[[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join()] = mode;
  }
  const [top, bottom] = [56, canvas.height - 22];
  const [width, height] = [canvas.width / columns, (bottom - top) / rows];
  return Array.from({length: columns}, (_, column) => Array.from({length: rows}, (_, row) => {
    const counts = {};
    for (let y = 0; y < height; y += 1) {
      for (let x = 0; x < width; x += 1) {
        const at = 4 * ((top + row * height + y) * canvas.width + column * width + x);
        const key = [...all.slice(at, at + 3)].join();
        counts[key] = (counts[key] ?? 0) + 1;
      }
    }
    return modes[Object.keys(counts).sort((a, b) => counts[b] - counts[a])[0]] ?? 'none';
  }));
})()"""
