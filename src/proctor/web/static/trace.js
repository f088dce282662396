// The page of a trace: a list that is fetched as it is read, filters, keys, links to a place.

import { make } from "./trace_row.js";
import { Rows } from "./trace_rows.js";
import { List } from "./trace_list.js";

const $ = (id) => document.getElementById(id);
const page = $("trace");
const count = new Intl.NumberFormat("en-US");
const rows = new Rows(page.dataset.base, page.dataset.part);
const list = new List($("steps"), $("space"), $("window"), rows);
const steps = { total: 0 };
let hits = { text: "", at: [], next: -1 };
let errors = null;

function many(number, one, several = `${one}s`) {
  return `${count.format(number)} ${number === 1 ? one : several}`;
}

function say(error) {
  $("trouble").textContent = `Could not be loaded: ${error.message}`;
  $("trouble").hidden = false;
}

function guarded(act) {
  return (...words) => {
    Promise.resolve(act(...words)).then(() => undefined, say);
  };
}

// The place: said, kept in the address, drawn on the strip.

let timer;
list.troubled = say;
list.moved = (at) => {
  clearTimeout(timer);
  timer = setTimeout(() => tell(at), 120);
};

function anchorOf(row) {
  return row.is_first ? `step-${row.step}` : `entry-${row.row}`;
}

function tell(at) {
  const row = rows.get(at);
  $("strip").querySelector(".here")?.setAttribute("x", (238 * at) / Math.max(rows.total - 1, 1));
  if (!row) return;
  const whole = steps.total ? ` of ${count.format(steps.total)}` : "";
  const shown = isFiltered() ? `, entry ${count.format(at + 1)} of ${count.format(rows.total)} shown` : "";
  const place = steps.total || row.step ? `step ${count.format(row.step)}${whole}` : `entry ${count.format(at + 1)} of ${count.format(rows.total)}`;
  $("position").textContent = `${place}${steps.total ? shown : ""}`;
  history.replaceState(null, "", `${location.pathname}${location.search}#${anchorOf(row)}`);
}

// Filters

function isFiltered() {
  return Object.values(rows.choice).some((value) => value);
}

function readChoice() {
  rows.choice = {
    role: $("role").value,
    tool: $("tool").value,
    errors: $("errors").checked ? "1" : "",
  };
}

async function refilter() {
  const row = rows.get(list.current);
  readChoice();
  rows.clear();
  errors = null;
  const words = new URLSearchParams({ part: rows.part, ...rows.choice });
  for (const [key, value] of [...words]) if (!value) words.delete(key);
  const query = words.size ? `?${words}` : "";
  history.replaceState(null, "", `${location.pathname}${query}${location.hash}`);
  const at = await rows.find(row ? `entry-${row.row}` : "entry-0");
  if (at === null) {
    rows.total = 0;
    list.draw();
    $("window").append(make("p", "empty", "No entry matches."));
    $("position").textContent = "no entry matches";
  } else {
    await list.show(at);
  }
  if (hits.text) await search(hits.text, { stay: true });
}

// Moving

async function step(by) {
  const begins = (at) => rows.get(at)?.is_first || at === 0;
  let at = list.current;
  if (by < 0 && !begins(at)) {
    // First to the beginning of this step.
    while (at > 0 && !begins(at)) {
      at -= 1;
      await rows.ensure(at, at + 1);
    }
    return list.go(at);
  }
  const from = rows.get(at)?.step;
  for (at += by; at > 0 && at < rows.total - 1; at += by) {
    await rows.ensure(at, at + 1);
    // With a filter the first entry of a step may not be among what is shown.
    const before = at > 0 ? (await rows.ensure(at - 1, at), rows.get(at - 1)) : null;
    if (rows.get(at)?.is_first || before?.step !== rows.get(at)?.step) {
      if (rows.get(at)?.step !== from || rows.get(at)?.is_first) break;
    }
  }
  return list.go(at);
}

async function error(by) {
  errors ??= (await rows.ask("find")).at;
  const next = by > 0 ? errors.find((at) => at > list.current) : errors.findLast((at) => at < list.current);
  if (next === undefined) {
    $("position").textContent = errors.length ? `no error ${by > 0 ? "after" : "before"} this` : "no error";
    return;
  }
  await list.go(next);
}

// Finding

async function search(text, { stay = false } = {}) {
  list.needle = text.toLowerCase();
  hits = { text, at: [], next: -1 };
  if (text) {
    $("found").textContent = "…";
    const answer = await rows.ask("find", { q: text });
    if (hits.text !== text) return;
    hits.at = answer.at;
    hits.isAll = answer.is_all;
  }
  list.forget();
  list.draw();
  if (!text || stay) return tellHits();
  await hit(0);
}

async function hit(by) {
  if (!hits.at.length) return tellHits();
  if (by === 0) {
    const next = hits.at.findIndex((at) => at >= list.current);
    hits.next = next < 0 ? 0 : next;
  } else {
    hits.next = (hits.next + by + hits.at.length) % hits.at.length;
  }
  tellHits();
  await list.go(hits.at[hits.next], { focus: document.activeElement !== $("find") });
}

function tellHits() {
  if (!hits.text) $("found").textContent = "";
  else if (!hits.at.length) $("found").textContent = "nothing found";
  else {
    const whole = `${count.format(hits.at.length)}${hits.isAll ? "" : "+"}`;
    $("found").textContent = hits.next < 0 ? `${whole} entries` : `${count.format(hits.next + 1)} of ${whole}`;
  }
}

function endSearch() {
  $("find").value = "";
  hits = { text: "", at: [], next: -1 };
  guarded(search)("");
  $("steps").focus({ preventScroll: true });
}

// Folding

async function fold(at) {
  const row = rows.get(at);
  if (!row) return;
  const isFolded = row.texts?.some((text) => text.folded.end);
  if (!isFolded && !row.isUnfolded) return;
  const other = isFolded ? await rows.whole_row(at) : await rows.folded_row(at);
  other.isUnfolded = isFolded;
  rows.put(at, other);
  list.draw();
}

async function foldAll() {
  rows.whole = !rows.whole;
  $("unfold").setAttribute("aria-pressed", String(rows.whole));
  $("unfold").textContent = rows.whole ? "Fold all" : "Unfold all";
  const at = list.current;
  rows.clear();
  await list.show(at);
}

async function copy() {
  const row = rows.get(list.current);
  if (row) history.replaceState(null, "", `${location.pathname}${location.search}#${anchorOf(row)}`);
  await navigator.clipboard.writeText(location.href);
  $("position").textContent = "link copied";
}

// What is known of the whole trace

async function outline() {
  const known = await rows.ask("outline", { role: "", tool: "", errors: "" });
  steps.total = known.steps;
  const counts = [many(known.steps, "step"), many(known.entries, "entry", "entries"), many(known.errors, "error")];
  $("counts").textContent = `· ${counts.join(", ")}`;
  fill($("role"), known.roles);
  fill($("tool"), known.tools);
  drawStrip(known.strip);
  if (known.problems) {
    $("damage").hidden = false;
    $("damage").querySelector("summary").textContent = `${many(known.problems, "line or value", "lines or values")} could not be read exactly`;
    $("damage").querySelector("ul").replaceChildren(...known.noticed.map((sentence) => make("li", "", sentence)));
  }
  tell(list.current);
}

async function behaviour() {
  const { labels } = await rows.ask("outline", { role: "", tool: "", errors: "", labels: 1 });
  const counts = Object.entries(labels).map(([name, times]) => `${count.format(times)} ${name}`);
  $("behaviour").textContent = counts.length ? `· ${counts.join(", ")}` : "";
  if (!rows.labelled) {
    await rows.renew(list.current - 50, list.current + 50);
    list.draw();
  }
}

function fill(select, names) {
  const chosen = select.value;
  const all = make("option", "", "all");
  all.value = "";
  select.replaceChildren(all, ...names.map(([name, times]) => {
    const option = make("option", "", `${name} (${count.format(times)})`);
    option.value = name;
    return option;
  }));
  select.value = chosen;
}

function drawStrip(errorsAlong) {
  const most = Math.max(...errorsAlong, 1);
  const width = 240 / errorsAlong.length;
  const bars = errorsAlong.map((times, at) => (times ? bar(at * width, width, "wrong", 2 + (6 * times) / most) : null));
  $("strip").replaceChildren(...bars.filter(Boolean), bar(0, 2, "here", 8));
}

function bar(x, width, name, height) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [key, value] of Object.entries({ x, y: 8 - height, width, height, class: name })) node.setAttribute(key, value);
  return node;
}

// A trial that runs: new entries are put at the end, and read along if the end is on the screen.

const PAUSE = 1000;

async function follow() {
  let pause = PAUSE;
  let known = null;
  while (page.dataset.running) {
    await new Promise((done) => setTimeout(done, pause));
    if (document.hidden) continue;
    const began = performance.now();
    try {
      const answer = await rows.ask("steps", { count: 0 });
      // The agent's own trace, which is there at the end, goes before what its commands printed.
      if (answer.file !== page.dataset.file) return location.reload();
      if (known !== answer.entries) await grow(answer.total);
      known = answer.entries;
      if (!answer.running) await end();
      $("trouble").hidden = true;
      // A long trace takes long to read again.
      pause = Math.max(PAUSE, 5 * (performance.now() - began));
    } catch (error) {
      say(error);
      pause = 5 * PAUSE;
    }
  }
}

async function grow(total) {
  if (total === rows.total) return;
  const isAtEnd = list.isAtEnd;
  errors = null;
  if (total < rows.total) {
    // The middle of a very long output was cut.
    rows.clear();
    rows.total = total;
    await list.show(Math.min(list.current, total - 1));
  } else {
    await rows.grow(total);
    list.draw();
  }
  if (isAtEnd) await list.go(total - 1, { focus: false });
  await outline();
}

async function end() {
  delete page.dataset.running;
  $("running").textContent = "";
  await outline();
  await behaviour();
}

// Keys and buttons

const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  J: () => list.go(list.current + 1),
  K: () => list.go(list.current - 1),
  n: () => error(1),
  N: () => error(-1),
  g: () => list.go(0),
  G: () => list.go(rows.total - 1),
  "]": () => hit(1),
  "[": () => hit(-1),
  f: () => fold(list.current),
  e: () => fold(list.current),
  F: foldAll,
  E: foldAll,
  c: copy,
  x: () => $("errors").click(),
  "/": () => ($("find").focus(), $("find").select()),
  "?": () => ($("help").open ? $("help").close() : $("help").showModal()),
};

// Where nothing has the focus, these keys would scroll the page, which has nothing to scroll.
const SCROLLS = {
  " ": 0.9,
  PageDown: 0.9,
  PageUp: -0.9,
  ArrowDown: 0.1,
  ArrowUp: -0.1,
  End: Infinity,
  Home: -Infinity,
};

let turn = Promise.resolve();

function pressed(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.target.matches("input, select, textarea")) return;
  if ($("help").open && event.key !== "?") return;
  if (event.key === "Escape" && hits.text) return endSearch();
  if (event.target === document.body && Object.hasOwn(SCROLLS, event.key)) {
    event.preventDefault();
    const by = SCROLLS[event.key] * $("steps").clientHeight;
    $("steps").scrollTop = Math.max(0, Math.min($("steps").scrollTop + by, $("steps").scrollHeight));
    return;
  }
  const act = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : null;
  if (!act) return;
  event.preventDefault();
  // One after the other: a key that is held down goes on from where the last one led.
  turn = turn.then(act).catch(say);
}

function listen() {
  document.addEventListener("keydown", pressed);
  $("bar").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["role", "tool", "errors"]) $(id).addEventListener("change", guarded(refilter));
  $("find").addEventListener("keydown", (event) => {
    if (event.key === "Escape") return endSearch();
    if (event.key !== "Enter") return;
    event.preventDefault();
    const text = $("find").value;
    guarded(text && text === hits.text ? () => hit(event.shiftKey ? -1 : 1) : search)(text);
  });
  $("find-next").addEventListener("click", guarded(() => ($("find").value === hits.text ? hit(1) : search($("find").value))));
  $("find-previous").addEventListener("click", guarded(() => ($("find").value === hits.text ? hit(-1) : search($("find").value))));
  $("error-next").addEventListener("click", guarded(() => error(1)));
  $("error-previous").addEventListener("click", guarded(() => error(-1)));
  $("unfold").addEventListener("click", guarded(foldAll));
  $("copy").addEventListener("click", guarded(copy));
  $("keys").addEventListener("click", () => $("help").showModal());
  $("strip").addEventListener("click", guarded((event) => {
    const box = $("strip").getBoundingClientRect();
    return list.go(Math.floor(((event.clientX - box.left) / box.width) * rows.total));
  }));
  $("window").addEventListener("click", (event) => {
    const node = event.target.closest("article");
    if (!node || node.at === undefined) return;
    list.mark(node.at);
    list.moved(node.at);
    if (event.target.closest("button.unfold")) guarded(fold)(node.at);
    const link = event.target.closest("a.number");
    if (link) {
      event.preventDefault();
      guarded(() => list.go(node.at))();
    }
  });
  window.addEventListener("hashchange", guarded(followHash));
}

async function followHash() {
  const found = /^#(step|entry)-(\d{1,16})$/.exec(location.hash);
  if (!found) return;
  const at = await rows.find(`${found[1]}-${found[2]}`);
  if (at !== null) await list.go(at);
}

async function start() {
  readChoice();
  const found = /^#((?:step|entry)-\d{1,16})$/.exec(location.hash);
  const at = await rows.find(found ? found[1] : "entry-0");
  const begin = found ? at : Number(page.dataset.begin);
  if (at === null) return;
  page.classList.add("live");
  for (const node of page.querySelectorAll(".script-only")) node.hidden = false;
  await rows.ensure(begin - 10, begin + 20);
  await list.show(begin);
  if (found) list.nodes.get(list.current)?.focus({ preventScroll: true });
  listen();
  page.dataset.ready = "yes";
  await outline();
  await behaviour();
  await follow();
}

guarded(start)();
