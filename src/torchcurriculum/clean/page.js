"use strict";
// Every text from the data is set as text, never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const rows = data.rows, SIZE = 24, KEY = "torchcurriculum-review-" + data.key;
const $ = id => document.getElementById(id);
const WORDS = { accept: "accepted", keep: "kept", drop: "dropped", other: "another label" };
const decided = new Map(), undoable = [];
let view = [], current = 0;
rows.forEach((row, place) => { row.place = place; });
const byRow = new Map(rows.map(row => [row.row, row]));

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter(child => child !== null));
  return element;
}
const percent = share => share < .01 ? "under 1%" : share > .99 ? "over 99%" : Math.round(100 * share) + "%";
const name = row => row.id === null ? "row " + row.row : row.id;

// ------------------------------------------------------------ keeping decisions

function store() {
  try { localStorage.setItem(KEY, JSON.stringify([...decided])); return true; } catch { return false; }
}
function restore() {
  let kept = data.decisions;
  if (!data.save) {
    try { kept = JSON.parse(localStorage.getItem(KEY)) || []; } catch { kept = []; }
  }
  for (const [row, one] of kept) if (byRow.has(row) && WORDS[one.decision]) decided.set(row, one);
}

const waiting = new Map();
let sending = false;
async function send() {
  if (sending || !waiting.size) return;
  sending = true;
  const batch = [...waiting];
  let good = false;
  try {
    const body = JSON.stringify(batch.map(([row, one]) => ({ row, decision: one && one.decision, label: one && one.label })));
    const answer = await fetch("decisions", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    good = answer.ok;
  } catch { good = false; }
  sending = false;
  if (good) for (const [row, one] of batch) if (waiting.get(row) === one) waiting.delete(row);
  say();
  if (waiting.size) setTimeout(send, good ? 0 : 3000);
}

function decide(changes) {
  undoable.push(changes.map(([row]) => [row, decided.get(row)]));
  apply(changes);
}
function apply(changes) {
  for (const [row, one] of changes) {
    if (one) decided.set(row, one); else decided.delete(row);
    if (data.save) waiting.set(row, one || null);
    const card = document.querySelector(`[data-row="${row}"]`);
    if (card) mark(card, byRow.get(row));
  }
  if (data.save) send(); else store();
  say();
}
function undo() { const last = undoable.pop(); if (last) apply(last); }

function say() {
  $("progress").value = decided.size;
  $("count").textContent = `${decided.size.toLocaleString("en")} of ${rows.length.toLocaleString("en")} decided`;
  const lost = data.save ? (waiting.size && !sending) : !store();
  $("saved").textContent = !lost ? (data.save ? "Each decision is saved at once in " + data.save + "." : "Decisions are kept in this browser.")
    : data.save ? `Not saved yet: ${waiting.size}. Is \`curriculum review\` still running? Trying again.`
    : "This browser keeps nothing: download the decisions before you close the page.";
  $("saved").classList.toggle("warn", Boolean(lost));
  $("undo").disabled = !undoable.length;
}

function decisions() {
  return rows.filter(row => decided.has(row.row)).map(row => {
    const { decision, label } = decided.get(row.row);
    return { row: row.row, id: row.id, given: row.given, decision, label: label === undefined ? null : label };
  });
}
function download(file, text) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "application/octet-stream" })), download: file });
  document.body.append(link); link.click(); link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
function asJson() {
  return JSON.stringify({ format: 1, proposal: data.key, source: data.source, decisions: decisions() }) + "\n";
}
function asCsv() {
  const number = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
  const cell = value => {
    let text = value === null ? "" : String(value);
    if (/^'*[=+\-@\t\r]/.test(text) && !number.test(text)) text = "'" + text;  // a spreadsheet would run it
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  const head = ["row", "id", "given", "decision", "label"];
  return [head, ...decisions().map(one => head.map(key => cell(one[key])))].map(line => line.join(",") + "\n").join("");
}

// ------------------------------------------------------------ cards

function shown(row) {
  const { picture, text, values } = row.show;
  return [
    picture ? make("img", { src: picture, alt: `${name(row)}, given the label ${row.given}` }) : null,
    text ? make("p", { class: "text", tabindex: "0" }, text) : null,
    values ? make("dl", {}, ...Object.entries(values).map(([key, value]) => make("div", {}, make("dt", {}, key), make("dd", {}, value)))) : null,
  ];
}
function cardOf(row, place) {
  const act = (what, label) => () => { choose(place); set(row, what, label); };
  const button = (what, words, key) => make("button", { type: "button", "data-do": what, onclick: act(what) }, words, make("kbd", {}, key));
  const other = make("input", { list: "classes", "aria-label": `Another label for ${name(row)}`, placeholder: "another label", autocomplete: "off" });
  const chosen = () => { if (other.value.trim()) { choose(place); set(row, "other", other.value.trim()); } };
  other.addEventListener("change", chosen);
  other.addEventListener("keydown", event => {
    if (event.key === "Enter") { chosen(); other.blur(); }
    if (event.key === "Escape") other.blur();
  });
  const card = make("li", { class: "card", tabindex: "-1", "data-row": row.row, "data-place": place, onfocusin: () => choose(place) },
    make("p", { class: "name" }, name(row), row.sure || !row.called ? make("span", { class: "badge" }, row.sure ? "sure" : "to check") : null),
    ...shown(row),
    make("p", { class: "labels" }, make("span", {}, "given "), make("b", {}, row.given),
      row.suggested === null ? make("span", {}, " and no better one known") : make("span", {}, " fits better as "),
      row.suggested === null ? null : make("b", { class: "new" }, row.suggested)),
    make("p", { class: "small" }, (!row.called ? "" : `The given label is right with ${percent(row.quality)}` +
      (row.suggestion_probability === null ? ". " : `, the suggested one with ${percent(row.suggestion_probability)}. `)) + row.why),
    make("div", { class: "buttons" },
      row.suggested === null ? null : button("accept", "Accept", "a"), button("keep", "Keep", "k"), button("drop", "Drop", "d"), other),
    make("p", { class: "decision", role: "status" }));
  mark(card, row);
  return card;
}
function mark(card, row) {
  const one = decided.get(row.row);
  card.dataset.decision = one ? one.decision : "";
  for (const button of card.querySelectorAll("[data-do]")) button.setAttribute("aria-pressed", Boolean(one && one.decision === button.dataset.do));
  card.querySelector("input").value = one && one.decision === "other" ? one.label : "";
  card.querySelector(".decision").textContent = !one ? "" : "You: " + WORDS[one.decision] + (one.decision === "accept" || one.decision === "other" ? ", " + one.label : "");
}
function set(row, decision, label) {
  if (decision === "accept" && row.suggested === null) return;
  const one = { decision };
  if (decision === "accept") one.label = row.suggested;
  if (decision === "other") one.label = label;
  if (decision === "other" && label === row.given) { one.decision = "keep"; delete one.label; }
  if (decision === "other" && label === row.suggested) one.decision = "accept";
  const before = decided.get(row.row);
  if (!before || before.decision !== one.decision || before.label !== one.label) decide([[row.row, one]]);
}

// ------------------------------------------------------------ choosing what is shown

const ORDERS = {
  suspicious: (a, b) => a.place - b.place,
  certain: (a, b) => (b.suggestion_probability ?? -1) - (a.suggestion_probability ?? -1) || a.place - b.place,
  unsure: (a, b) => Math.abs(a.quality - .5) - Math.abs(b.quality - .5) || a.place - b.place,
  data: (a, b) => a.row - b.row,
};
function fits(row) {
  const state = $("state").value, one = decided.get(row.row), text = $("find").value.trim().toLowerCase();
  if (state === "open" && one) return false;
  if (state === "sure" && !row.sure) return false;
  if (state === "called" && !row.called || state === "check" && row.called) return false;
  if (WORDS[state] && !(one && one.decision === state)) return false;
  if ($("given").value !== "" && row.given !== data.classes[$("given").value]) return false;
  if ($("suggested").value !== "" && row.suggested !== data.classes[$("suggested").value]) return false;
  return !text || [name(row), row.given, row.suggested || "", row.show.text || "", ...Object.values(row.show.values || {})].some(part => part.toLowerCase().includes(text));
}
function refresh() {
  view = rows.filter(fits).sort(ORDERS[$("order").value]);
  current = 0;
  render();
}
function render() {
  const first = current - current % SIZE, pages = Math.max(1, Math.ceil(view.length / SIZE));
  $("cards").replaceChildren(...view.slice(first, first + SIZE).map((row, offset) => cardOf(row, first + offset)));
  $("where").textContent = view.length ? `${(first + 1).toLocaleString("en")} to ${Math.min(first + SIZE, view.length).toLocaleString("en")} of ${view.length.toLocaleString("en")}` : "Nothing fits these filters.";
  $("before").disabled = !first;
  $("after").disabled = first / SIZE + 1 >= pages;
  const open = acceptable().length;
  $("all").textContent = `Accept the ${open.toLocaleString("en")} undecided of these`;
  $("all").hidden = !open;
  for (const button of document.querySelectorAll("#matrix button")) {
    button.setAttribute("aria-pressed", button.dataset.given === $("given").value && button.dataset.suggested === $("suggested").value);
  }
  highlight();
  say();
}
// Those to check are accepted one by one, or all together where nothing else is shown.
function acceptable() {
  return view.filter(row => row.suggested !== null && !decided.has(row.row) && (row.called || $("state").value === "check"));
}
function highlight() {
  for (const card of $("cards").children) card.classList.toggle("current", Number(card.dataset.place) === current);
}
function choose(place) { if (place !== current) { current = place; highlight(); } }
function go(place) {
  place = Math.max(0, Math.min(view.length - 1, place));
  if (place < 0) return;
  const turned = Math.floor(place / SIZE) !== Math.floor(current / SIZE);
  current = place;
  if (turned) render(); else highlight();
  const card = $("cards").querySelector(".current");
  if (card) { card.focus({ preventScroll: true }); card.scrollIntoView({ block: "nearest" }); }
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const row = view[current], keys = { a: "accept", k: "keep", d: "drop" };
  if (keys[event.key] && row) { set(row, keys[event.key]); go(current + 1); }
  else if (event.key === "o" && row) $("cards").querySelector(".current input").focus();
  else if (event.key === "j" || event.key === "ArrowRight") go(current + 1);
  else if (event.key === "i" || event.key === "ArrowLeft") go(current - 1);
  else if (event.key === "n") go(current - current % SIZE + SIZE);
  else if (event.key === "p") go(current - current % SIZE - SIZE);
  else if (event.key === "u") undo();
  else return;
  event.preventDefault();
});

function fill(select, key) {
  const counts = new Map();
  for (const row of rows) if (row[key] !== null) counts.set(row[key], (counts.get(row[key]) || 0) + 1);
  data.classes.forEach((label, place) => { if (counts.has(label)) select.append(make("option", { value: place }, `${label} (${counts.get(label)})`)); });
}
fill($("given"), "given");
fill($("suggested"), "suggested");
$("classes").append(...data.classes.map(label => make("option", { value: label })));
for (const id of ["state", "given", "suggested", "order"]) $(id).addEventListener("change", refresh);
$("find").addEventListener("input", refresh);
$("clear").addEventListener("click", () => { for (const id of ["state", "given", "suggested", "find"]) $(id).value = ""; refresh(); });
$("before").addEventListener("click", () => go(current - current % SIZE - SIZE));
$("after").addEventListener("click", () => go(current - current % SIZE + SIZE));
$("undo").addEventListener("click", undo);
$("json").addEventListener("click", () => download("decisions.json", asJson()));
$("csv").addEventListener("click", () => download("decisions.csv", asCsv()));
$("all").addEventListener("click", () => {
  decide(acceptable().map(row => [row.row, { decision: "accept", label: row.suggested }]));
  render();
});
for (const button of document.querySelectorAll("#matrix button")) button.addEventListener("click", () => {
  const on = button.getAttribute("aria-pressed") === "true";
  $("given").value = on ? "" : button.dataset.given;
  $("suggested").value = on ? "" : button.dataset.suggested;
  refresh();
  $("review").scrollIntoView({ block: "start" });
});
$("progress").max = rows.length;
restore();
refresh();
