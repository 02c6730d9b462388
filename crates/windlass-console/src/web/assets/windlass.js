// Live updates, and keys. Without this script, every page works; with it, pages stay up to date.

const body = document.body;
const main = document.querySelector("main");

// Live updates.

const from = body.dataset.liveFrom;
let source = null;
let held = false;
let retry = 0;
let timer = 0;
/** What elements will show that were in use when it came, by their name. */
const waiting = new Map();

/** Says beside the time of the page whether it is kept up to date. */
function status() {
  const link = document.querySelector(".reload");
  if (!link || !from) return;
  const isLive = source && source.readyState === EventSource.OPEN;
  link.textContent = held ? "held" : isLive ? "live" : "reload";
  link.title = held ? "Press . to resume live updates" : isLive ? "Press . to hold" : "";
}

/** Whether a person is about to use the element: then it stays as it is. */
function isInUse(element) {
  const selection = getSelection();
  const isSelected = selection && !selection.isCollapsed && selection.containsNode(element, true);
  return isSelected
    || element.contains(document.activeElement) && document.activeElement !== body
    || element.querySelector("details[open]:not([data-open]), input:checked") !== null
    || [...element.querySelectorAll("input:not([type=hidden])")].some((field) => field.value !== field.defaultValue);
}

const keyOf = (row) => row.dataset.key ?? row.cells[0]?.textContent ?? "";

/** Keeps the rows in the order in which they are seen: nothing moves under the pointer. */
function keepOrder(old, fresh) {
  const bodies = fresh.querySelectorAll("tbody");
  old.querySelectorAll("tbody").forEach((before, index) => {
    const after = bodies[index];
    if (!after) return;
    const places = new Map([...before.rows].map((row, place) => [keyOf(row), place]));
    const place = (row) => places.get(keyOf(row)) ?? Infinity;
    const rows = [...after.rows];
    const sorted = [...rows].sort((a, b) => place(a) - place(b) || rows.indexOf(a) - rows.indexOf(b));
    if (sorted.some((row, at) => row !== rows[at])) after.append(...sorted);
  });
}

const PIECES = "td, dd, .lead, .asof time, nav a";

/** Marks the pieces whose text is another one now. */
function mark(old, fresh) {
  const before = old.querySelectorAll(PIECES);
  const after = fresh.querySelectorAll(PIECES);
  if (before.length !== after.length) return;
  after.forEach((piece, index) => {
    if (piece.textContent !== before[index].textContent) piece.classList.add("fresh");
  });
}

/** Shows what has come, but for elements in use: they show it when they are not in use any more. */
function update() {
  for (const [name, html] of waiting) {
    const old = document.querySelector(`[data-live="${CSS.escape(name)}"]`);
    if (old && isInUse(old)) continue;
    waiting.delete(name);
    if (old) replace(old, html);
  }
}

function replace(old, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const fresh = template.content.firstElementChild;
  if (!fresh) return;
  keepOrder(old, fresh);
  old.querySelectorAll(".fresh").forEach((piece) => {
    piece.classList.remove("fresh");
    if (piece.className === "") piece.removeAttribute("class");
  });
  if (old.isEqualNode(fresh)) return;
  mark(old, fresh);
  old.replaceWith(fresh);
}

/** Shows that the database does not answer, and that the page is old; or that it answers again. */
function away(seconds) {
  let note = document.getElementById("away");
  main.classList.toggle("stale", seconds !== null);
  if (seconds === null) {
    note?.remove();
    return;
  }
  if (!note) {
    note = document.createElement("div");
    note.id = "away";
    note.className = "why bad";
    note.setAttribute("role", "alert");
    note.append(document.createElement("p"));
    main.before(note);
  }
  note.firstChild.textContent =
    `Database away: it has not answered for ${seconds} s. The page shows what was last seen. `
    + "No job is lost, and nothing can be changed until it answers.";
}

function connect() {
  clearTimeout(timer);
  if (!from || held || document.hidden || source) return;
  source = new EventSource(from);
  source.addEventListener("open", () => {
    retry = 0;
    status();
  });
  source.addEventListener("fragments", (event) => {
    away(null);
    for (const [name, html] of Object.entries(JSON.parse(event.data))) waiting.set(name, html);
    update();
    const count = document.querySelector(".top nav [aria-current=page] b")?.textContent;
    document.title = document.title.replace(/^(\([^)]*\) )?/, count ? `(${count}) ` : "");
    status();
  });
  source.addEventListener("away", (event) => away(JSON.parse(event.data).seconds));
  source.addEventListener("error", () => {
    // The browser connects again by itself, unless it was refused.
    if (source?.readyState === EventSource.CLOSED) {
      source = null;
      retry = Math.min((retry || 2_500) * 2, 60_000);
      timer = setTimeout(connect, retry * (0.75 + Math.random() / 2));
    }
    status();
  });
}

function disconnect() {
  clearTimeout(timer);
  source?.close();
  source = null;
  status();
}

// A hidden page keeps no connection: browsers have only six for each server.
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
addEventListener("pagehide", disconnect);
addEventListener("pageshow", connect);
connect();

// A page that could not be read is asked for again, until it can be.
if (document.querySelector("[data-again]")) setTimeout(() => location.reload(), 5_000 + Math.random() * 2_000);

// Check boxes.

document.addEventListener("change", (event) => {
  const box = event.target;
  if (!(box instanceof HTMLInputElement) || box.type !== "checkbox") return;
  if (box.hasAttribute("data-all")) {
    const boxes = box.closest("table")?.querySelectorAll("tbody .sel input[type=checkbox]") ?? [];
    for (const other of boxes) {
      other.checked = box.checked;
      other.closest("tr")?.classList.toggle("picked", box.checked);
    }
  } else if (box.closest(".sel")) {
    box.closest("tr")?.classList.toggle("picked", box.checked);
  }
});
// Without the script it would do nothing, so it is not shown.
document.querySelectorAll("input[data-all]").forEach((box) => (box.hidden = false));

// Keys. None deletes or changes anything.

const PAGES = { o: "", q: "queues", j: "jobs", f: "failed", r: "recurring", p: "processes", l: "limits" };
let isGoing = false;

function go(key) {
  const home = document.querySelector(".brand")?.getAttribute("href");
  if (home && key in PAGES) location.assign(home + PAGES[key]);
}

const rows = () => [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a, input"));

function move(step) {
  const all = rows();
  const current = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[current < 0 ? (step > 0 ? 0 : all.length - 1) : current + step];
  // The link comes after the check box, and opens the row.
  (next?.querySelector("th a") ?? next?.querySelector("a") ?? next?.querySelector("input"))?.focus();
}

function select() {
  const row = document.activeElement?.closest("tr");
  row?.querySelector(".sel input[type=checkbox]")?.click();
}

function hold() {
  held = !held;
  held ? disconnect() : connect();
  status();
}

function showKeys() {
  const keys = document.getElementById("keys");
  if (!keys) return;
  keys.open = true;
  keys.scrollIntoView({ block: "nearest" });
  keys.querySelector("summary")?.focus();
}

const KEYS = {
  "/": () => document.getElementById("q")?.focus(),
  j: () => move(1),
  k: () => move(-1),
  x: select,
  ".": hold,
  "?": showKeys,
};

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input:not([type=checkbox], [type=radio]), select, textarea");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (isGoing) {
    isGoing = false;
    go(event.key);
  } else if (event.key === "g") {
    isGoing = true;
    setTimeout(() => (isGoing = false), 1_500);
  } else if (event.key in KEYS) {
    KEYS[event.key]();
  } else {
    return;
  }
  event.preventDefault();
});
