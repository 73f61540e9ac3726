// What is shown where no run is live: how to get one onto this page, and what was here before.

import { h, setHidden, setText } from "./dom.js";
import { plural } from "./format.js";

export function welcome(showEnded) {
  const socket = h("code");
  const title = h("h2");
  const before = h("span");
  const earlier = h("p", null, before, " ",
    h("button", { type: "button", on: { click: showEnded } }, "Show ended runs"));
  const command = (text) => h("code", { class: "command", tabindex: "0" }, text);
  const element = h("section", { class: "panel start" },
    title, earlier,
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
    update(version, ended) {
      setText(socket, version?.socket ?? "its UNIX socket");
      setText(title, ended > 0 ? "No run is live" : "No run is registered yet");
      setHidden(earlier, ended === 0);
      setText(before, `${plural(ended, "run")} of before ${ended === 1 ? "is" : "are"} kept.`);
    },
  };
}
