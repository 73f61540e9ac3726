// Building and updating the document. What runs say of themselves is untrusted: it becomes text
// nodes and attributes, never markup. Updates touch only what differs, so that scroll positions,
// focus and selections stay.

// h("p", {class: "note", "aria-live": "polite"}, "text", node, ...)
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) {
        element.addEventListener(event, handler);
      }
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function setText(element, text) {
  const value = text ?? "";
  if (element.textContent !== value) element.textContent = value;
}

export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

export function setHidden(element, hidden) {
  if (element.hidden !== hidden) element.hidden = hidden;
}

// A custom property or a style, through the object model: the policy forbids inline styles.
export function setStyle(element, name, value) {
  if (element.style.getPropertyValue(name) !== value) element.style.setProperty(name, value);
}

// Makes the children of `container` the views of `items`, in order. A view is an object with
// `element` and `update(item)`; views are kept in `views` (a Map) by key.
export function reconcile(container, views, items, keyOf, make) {
  const wanted = new Set();
  let next = container.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    if (wanted.has(key)) continue;
    wanted.add(key);
    let view = views.get(key);
    if (!view) {
      view = make(item);
      views.set(key, view);
    }
    view.update(item);
    if (view.element === next) {
      next = next.nextSibling;
    } else {
      container.insertBefore(view.element, next);
    }
  }
  for (const [key, view] of views) {
    if (wanted.has(key)) continue;
    view.element.remove();
    views.delete(key);
  }
}

// A table row whose cells are given as texts or as nodes made once; see updateRow.
export function row(cells) {
  return h("tr", null, ...cells);
}

export function table({ label, head, body, className = "compact" }) {
  const cells = head.map(([text, kind]) => h("th", { scope: "col", class: kind }, text));
  const element = h("table", { class: className }, h("thead", null, row(cells)), body);
  return h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": label },
    element);
}

// A view of one table row: cells of text, by the functions in `columns`.
export function textRow(columns) {
  const cells = columns.map(([, kind]) => h("td", { class: kind }));
  return {
    element: row(cells),
    update(item) {
      columns.forEach(([, , text], index) => setText(cells[index], text(item)));
    },
  };
}

let announcer = null;

// Said by screen readers, once, when they come to rest.
export function announce(text) {
  announcer ??= document.getElementById("announcer");
  setText(announcer, text);
}
