// Light, dark, or as the system has it. Runs before the first paint; remembers the choice.
(() => {
  "use strict";
  const kKey = "pudica.theme";
  const kOrder = ["auto", "light", "dark"];
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let choice = "auto";

  function stored() {
    try {
      return localStorage.getItem(kKey);
    } catch {
      return null;  // storage is switched off
    }
  }

  function apply() {
    const dark = choice === "dark" || (choice === "auto" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    document.dispatchEvent(new CustomEvent("pudica-theme"));
    const button = document.getElementById("theme");
    if (!button) return;
    const next = kOrder[(kOrder.indexOf(choice) + 1) % kOrder.length];
    button.textContent = choice === "auto" ? "Theme: auto" : `Theme: ${choice}`;
    button.setAttribute("aria-label", `Theme: ${choice}. Switch to ${next}`);
  }

  if (kOrder.includes(stored())) choice = stored();
  apply();
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      choice = kOrder[(kOrder.indexOf(choice) + 1) % kOrder.length];
      try {
        localStorage.setItem(kKey, choice);
      } catch {
        // It holds until the page is closed.
      }
      apply();
    });
  });
})();
