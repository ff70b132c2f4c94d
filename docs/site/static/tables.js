"use strict";
// A table that does not fit a phone stands as a list: each cell below the heading of its column.
const tables = [...document.querySelectorAll("table")];

for (const table of tables) {
  const headings = [...table.querySelectorAll("thead th")].map(cell => cell.innerText.trim());
  for (const row of table.querySelectorAll("tbody tr"))
    [...row.cells].forEach((cell, place) => { cell.dataset.label = headings[place] ?? ""; });
}

function fit() {
  for (const table of tables) {
    const box = table.parentElement;
    table.classList.remove("stacked");
    table.classList.toggle("stacked", box.scrollWidth > box.clientWidth);
  }
}

addEventListener("resize", fit);
addEventListener("toggle", fit, true);  // a closed block has no width
fit();
