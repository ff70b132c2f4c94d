"use strict";
// The matrix: a row for each operation, which opens to rows of its laws; a column for each implementation; a dialog for each cell.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const [LAW, COLUMN, STATUS, EXAMPLES, INFORMATIVE, VACUOUS, WORST, SECONDS, REASON] = Array(9).keys();
  const status = cell => data.statuses[cell[STATUS]][0];  // by which it is coloured
  const label = cell => data.statuses[cell[STATUS]][3];  // what people read
  const sign = cell => data.statuses[cell[STATUS]][1];
  const gravity = cell => data.statuses[cell[STATUS]][2];  // 0 is the gravest
  const classOf = name => name.replaceAll(" ", "-");
  const worst = cell => cell[WORST] === "inf" ? Infinity : cell[WORST] === "nan" ? Infinity : cell[WORST];
  const budgets = x => x === Infinity ? "∞" : x === 0 ? "0" : String(Number(x.toPrecision(2)));
  const laws = data.laws.map(([name, operation, statement, purpose, lean], place) => ({
    place, name, operation, statement: data.texts[statement], purpose: data.texts[purpose], lean: data.texts[lean], cells: [],
  }));
  laws.forEach(law => { law.sought = `${law.name} ${law.operation} ${law.statement}`.toLowerCase(); });
  data.cells.forEach(cell => { laws[cell[LAW]].cells[cell[COLUMN]] = cell; });
  const implementations = data.implementations.map(([name, group, arithmetic], place) => ({ place, name, group, arithmetic }));
  const operations = [...new Set(laws.map(law => law.operation))];

  const grid = document.getElementById("grid"), form = document.getElementById("filter"), dialog = document.getElementById("dialog");
  const chosen = new Set();        // statuses
  const folded = new Map();        // operation -> whether the reader opened or closed it
  let sorting = "order";           // "order", "name", or the place of an implementation
  let current = "law";             // the key of the button that Tab reaches

  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  // -- What is shown ----------------------------------------------------------------------------------------------------------

  function filtered() {
    const words = form.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const which = form.implementation.value, operation = form.operation.value;
    const wanted = implementations.filter(i => !which || which === `g ${i.group}` || which === `i ${i.place}`);
    const sought = cell => cell && (!chosen.size || chosen.has(status(cell)));
    const rows = laws.filter(law =>
      (!operation || law.operation === operation)
      && words.every(word => law.sought.includes(word))
      && wanted.some(i => sought(law.cells[i.place])));
    const columns = wanted.filter(i => rows.some(law => sought(law.cells[i.place])));
    return { rows, columns, narrowed: words.length > 0 || chosen.size > 0 || operation !== "" };
  }

  function inOrder(rows) {
    if (sorting === "order") return rows;
    if (sorting === "name") return [...rows].sort((a, b) => a.name.localeCompare(b.name));
    const rank = law => law.cells[sorting] ? gravity(law.cells[sorting]) : data.statuses.length;
    const size = law => law.cells[sorting] ? worst(law.cells[sorting]) : -1;
    return [...rows].sort((a, b) => rank(a) - rank(b) || (size(b) > size(a) ? 1 : size(b) < size(a) ? -1 : 0) || a.place - b.place);
  }

  const isOpen = (operation, shown) => folded.get(operation) ?? (shown.narrowed && shown.rows.length <= 60 || laws.length <= 30);

  // -- The table --------------------------------------------------------------------------------------------------------------

  function button(key, attributes, ...children) {
    return element("button", { type: "button", "data-key": key, tabindex: -1, ...attributes }, ...children);
  }

  function headRows(columns) {
    const labelled = i => fits(i.group, columns.filter(other => other.group === i.group).length);
    if (!columns.some(labelled)) return [headRow(columns, i => i.name)];
    const row = element("tr", { class: "groups" }, element("td"));
    columns.forEach((i, place) => {
      if (place && columns[place - 1].group === i.group) row.lastChild.colSpan += 1;
      else row.append(element("th", { scope: "colgroup", class: starts(columns, place).trim(), title: i.group }, labelled(i) ? i.group : ""));
    });
    return [row, headRow(columns, i => labelled(i) && i.name.startsWith(`${i.group} `) ? i.name.slice(i.group.length + 1) : i.name)];
  }

  const fits = (group, width) => group.length <= 4 * width - 3;  // a column is as wide as four bold letters

  function headRow(columns, nameOf) {
    const row = element("tr", {}, element("th", { scope: "col", class: "law", "aria-sort": sorting === "name" ? "ascending" : undefined },
      button("law", { title: "Sort by name, or in the laws' order" }, "Law")));
    columns.forEach((i, place) => row.append(element("th", {
      scope: "col", class: `name${starts(columns, place)}`, "aria-sort": sorting === i.place ? "other" : undefined,
    }, button(`i${i.place}`, { title: `Sort by ${i.name} (${i.arithmetic})` }, element("span", {}, nameOf(i))))));
    return row;
  }

  const starts = (columns, place) => place && columns[place].group !== columns[place - 1].group ? " starts" : "";

  function operationRow(operation, rows, columns, open) {
    const head = element("th", { scope: "row", class: "law" }, button(`o${operation}`, { "aria-expanded": open },
      element("span", { class: "fold", "aria-hidden": "true" }, open ? "▾" : "▸"),
      element("span", {}, operation.replaceAll("_", "_\u200b"), element("small", {}, ` ${rows.length} ${rows.length === 1 ? "law" : "laws"}`))));
    const row = element("tr", { class: "operation" }, head);
    columns.forEach((i, place) => {
      const cells = rows.map(law => law.cells[i.place]).filter(Boolean);
      const cell = element("td", { class: `sum${starts(columns, place)}` });
      if (cells.length) {
        const gravest = cells.reduce((a, b) => gravity(b) < gravity(a) ? b : a), n = cells.filter(c => status(c) === status(gravest)).length;
        cell.classList.add(classOf(status(gravest)));
        cell.title = `${i.name}: ${n} of ${cells.length}: ${label(gravest)}`;
        cell.append(element("span", { "aria-hidden": "true" }, sign(gravest)), element("small", {}, String(n)),
          hidden(` of ${cells.length}: ${label(gravest)}`));
      }
      row.append(cell);
    });
    return row;
  }

  const hidden = text => element("span", { style: "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap" }, text);

  function lawRow(law, columns) {
    const row = element("tr", {}, element("th", { scope: "row", class: "law" }, button(`l${law.place}`, {}, law.name)));
    columns.forEach((i, place) => {
      const cell = law.cells[i.place], box = element("td", { class: starts(columns, place).trim() });
      if (cell) {
        const said = `${law.name}, ${i.name}: ${label(cell)}${cell[EXAMPLES] ? `, max error ÷ error limit ${budgets(worst(cell))}` : ""}`;
        const other = chosen.size && !chosen.has(status(cell)) ? " other" : "";
        box.append(button(`c${law.place},${i.place}`, { class: `cell ${classOf(status(cell))}${other}`, "aria-label": said, title: said }, sign(cell)));
      }
      row.append(box);
    });
    return row;
  }

  function render() {
    const hadFocus = grid.contains(document.activeElement);
    const shown = filtered(), { rows, columns } = shown;
    const body = operations.flatMap(operation => {
      const these = inOrder(rows.filter(law => law.operation === operation));
      if (!these.length) return [];
      const open = isOpen(operation, shown);
      return [element("tbody", {}, operationRow(operation, these, columns, open), ...(open ? these.map(law => lawRow(law, columns)) : []))];
    });
    const nothing = element("tbody", {}, element("tr", {}, element("td", { class: "none" }, "No law matches the filter.")));
    grid.replaceChildren(element("table", { "aria-label": "Verdicts of every law on every implementation" },
      element("thead", {}, ...headRows(columns)), ...(body.length ? body : [nothing])));
    grid.style.setProperty("--table", `${grid.firstChild.offsetWidth}px`);
    document.getElementById("shown").textContent = rows.length === laws.length && columns.length === implementations.length
      ? `${laws.length} law${laws.length === 1 ? "" : "s"}` : `${rows.length} of ${laws.length} laws, ${columns.length} of ${implementations.length} implementations`;
    const allOpen = operations.every(operation => isOpen(operation, shown));
    document.getElementById("unfold").textContent = allOpen ? "Close all" : "Open all";
    reach(buttonOf(current) ?? grid.querySelector("button"));
    if (hadFocus) buttonOf(current)?.focus();
  }

  const buttonOf = key => [...grid.querySelectorAll("button")].find(b => b.dataset.key === key);

  function reach(target) {
    grid.querySelectorAll('button[tabindex="0"]').forEach(b => { b.tabIndex = -1; });
    if (target) { target.tabIndex = 0; current = target.dataset.key; }
  }

  // -- Moving about -----------------------------------------------------------------------------------------------------------

  const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

  grid.addEventListener("keydown", event => {
    const box = event.target.closest?.("th, td");
    if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
    const lines = [...grid.querySelectorAll("tr")];
    let target;
    if (event.key in STEPS) {
      const [down, right] = STEPS[event.key];
      let y = lines.indexOf(box.parentElement) + down, x = box.cellIndex + right;
      while (lines[y]?.cells[x] && !(target = lines[y].cells[x].querySelector("button"))) { y += down; x += right; }
    } else if (event.key === "Home" || event.key === "End") {
      const inRow = [...box.parentElement.querySelectorAll("button")];
      target = event.key === "Home" ? inRow[0] : inRow.at(-1);
    } else return;
    event.preventDefault();
    if (target) { reach(target); target.focus(); }
  });

  grid.addEventListener("click", event => {
    const pressed = event.target.closest("button");
    if (!pressed) return;
    const key = pressed.dataset.key;
    reach(pressed);
    if (key === "law") sorting = sorting === "name" ? "order" : "name";
    else if (key[0] === "i") sorting = sorting === Number(key.slice(1)) ? "order" : Number(key.slice(1));
    else if (key[0] === "o") folded.set(key.slice(1), pressed.getAttribute("aria-expanded") !== "true");
    else if (key[0] === "l") return openLaw(laws[key.slice(1)]);
    else return openCell(...key.slice(1).split(",").map(Number));
    render();
  });

  // -- A law, and a cell ------------------------------------------------------------------------------------------------------

  function show(law, about, mark, more, facts) {
    const paragraphs = law.statement.split(/\n\s*\n/).map(p => element("p", { class: "statement" }, p.replace(/\s+/g, " ")));
    const list = element("dl", { class: "facts" });
    [...facts, ["detects", law.purpose], ["Lean", law.lean]].filter(([, value]) => value !== "").forEach(([name, value]) =>
      list.append(element("div", {}, element("dt", {}, name), element("dd", {}, String(value)))));
    document.getElementById("dialog-body").replaceChildren(
      element("h3", { id: "dialog-title" }, ...mark, law.name),
      element("p", { class: "quiet" }, [law.operation, ...about].join(" · ")),
      ...paragraphs, ...more, list,
    );
    dialog.showModal();
    dialog.scrollTop = 0;
  }

  function openLaw(law) {
    const facts = data.statuses.map(([, , , name], place) => [name, law.cells.filter(cell => cell[STATUS] === place)]);
    show(law, [], [], [], facts.filter(([, cells]) => cells.length).map(([name, cells]) =>
      [`${name} (${cells.length})`, cells.map(cell => implementations[cell[COLUMN]].name).join(", ")]));
  }

  function openCell(lawPlace, column) {
    const law = laws[lawPlace], cell = law.cells[column], i = implementations[column], tried = cell[EXAMPLES] > 0;
    const facts = [
      ["test inputs", cell[EXAMPLES]],
      ["inputs that can expose a mistake", tried ? cell[INFORMATIVE] : ""],
      ["inputs with a vacuous error limit", cell[VACUOUS] || ""],
      ["max error ÷ error limit", tried ? budgets(worst(cell)) : ""],
      ["seconds", cell[SECONDS]],
    ];
    const found = document.getElementById(`finding-${column}-${lawPlace}`), reason = data.reasons[cell[REASON]];
    const more = found ? [...found.querySelector(".body").cloneNode(true).childNodes] : reason ? [element("p", {}, reason)] : [];
    const mark = element("span", { class: `mark ${classOf(status(cell))}`, "aria-hidden": "true" }, sign(cell));
    show(law, [`${i.name} (${i.arithmetic})`, label(cell)], [mark, " "], more, facts);
  }

  dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => buttonOf(current)?.focus());

  // -- The filter -------------------------------------------------------------------------------------------------------------

  operations.forEach(operation => form.operation.append(element("option", { value: operation }, operation)));
  const groups = Map.groupBy ? Map.groupBy(implementations, i => i.group) : implementations.reduce(
    (found, i) => found.set(i.group, [...(found.get(i.group) ?? []), i]), new Map());
  groups.forEach((members, group) => {
    if (members.length === 1) return form.implementation.append(element("option", { value: `i ${members[0].place}` }, members[0].name));
    form.implementation.append(element("optgroup", { label: group }, element("option", { value: `g ${group}` }, `all of ${group}`),
      ...members.map(i => element("option", { value: `i ${i.place}` }, i.name))));
  });
  data.statuses.forEach(([name, its, , words], place) => {
    const count = data.cells.filter(cell => cell[STATUS] === place).length;
    if (!count) return;
    const chip = element("button", { type: "button", "aria-pressed": "false" },
      element("span", { class: `mark ${classOf(name)}`, "aria-hidden": "true" }, its), ` ${words} ${count.toLocaleString("en")}`);
    chip.addEventListener("click", () => {
      chosen.has(name) ? chosen.delete(name) : chosen.add(name);
      chip.setAttribute("aria-pressed", String(chosen.has(name)));
      folded.clear();
      render();
    });
    document.getElementById("statuses").append(chip);
  });
  form.addEventListener("input", () => { folded.clear(); render(); });
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("reset", () => {
    chosen.clear(); folded.clear(); sorting = "order";
    form.querySelectorAll("[aria-pressed]").forEach(chip => chip.setAttribute("aria-pressed", "false"));
    setTimeout(render);
  });
  document.getElementById("unfold").addEventListener("click", event => {
    const opening = event.target.textContent === "Open all";
    operations.forEach(operation => folded.set(operation, opening));
    render();
  });

  // -- Paper, and links -------------------------------------------------------------------------------------------------------

  const SHEET = 960;  // pixels of text on a sheet of paper laid sideways

  addEventListener("beforeprint", () => {
    document.querySelectorAll(".finding:not([open]), .alike:not([open])").forEach(d => { d.open = true; d.dataset.shut = ""; });
    grid.style.zoom = Math.min(1, SHEET / grid.firstChild.offsetWidth);
  });
  addEventListener("afterprint", () => {
    document.querySelectorAll("details[data-shut]").forEach(d => { d.open = false; delete d.dataset.shut; });
    grid.style.zoom = "";
  });
  const openTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let d = target?.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
  };
  addEventListener("hashchange", openTarget);
  openTarget();
  render();
})();
