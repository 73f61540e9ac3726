// What a newcomer sees: how to get a run onto this page.

import { h, setText } from "./dom.js";

export function welcome() {
  const socket = h("code");
  const command = (text) => h("code", { class: "command", tabindex: "0" }, text);
  const element = h("section", { class: "panel start" },
    h("h2", null, "No run is registered yet"),
    h("p", null, "A training process shows up here by itself as soon as it says hello to this " +
      "daemon. Nothing waits for the daemon: training goes on the same without it."),
    h("ol", null,
      h("li", null, "Try it with the reference job:", command("pudica-train --daemon")),
      h("li", null, "Or start your own training under it:",
        command("pudica run -- python train.py")),
      h("li", null, "It runs, yet is not here? Ask why:", command("pudica doctor"))),
    h("p", { class: "note" }, "The daemon listens on ", socket, "."));
  return {
    element,
    update(version) {
      setText(socket, version?.socket ?? "its UNIX socket");
    },
  };
}
