"use strict";

async function refresh() {
  const answer = await fetch("/v1/runs");
  const { runs } = await answer.json();
  const rows = runs.map((run) => {
    const row = document.createElement("tr");
    for (const value of [run.id, run.name, run.state, run.step, run.peak_bytes, run.budget_bytes]) {
      const cell = document.createElement("td");
      cell.textContent = value === null ? "-" : String(value);
      row.append(cell);
    }
    return row;
  });
  document.getElementById("runs").replaceChildren(...rows);
}

refresh();
setInterval(refresh, 2000);
