// Regions follow the store: the server sends changed markup, and this script patches it in place.
import { setNow, tick } from "./ticks.js";

const body = document.body;
const stale = new Map(); // regions that changed while the visitor used them
let held = false, live = true, withheld = 0, source = null, timer = 0, wait = 1000, seen = Date.now(), away = 0, tag = "", said = 0, shown = body.dataset.now;

export const isHeld = () => held;
export const hold = (on) => {
  held = on;
  mark(live);
  const note = document.getElementById("held"), focused = note.contains(document.activeElement);
  note.hidden = !held;
  note.querySelector("b").textContent = clock(seen);
  announcer().textContent = held ? "Updates are held" : "Updates go on";
  if (held) return;
  settle();
  if (focused) [...document.querySelectorAll(".live")].find((chip) => chip.checkVisibility())?.focus();
};

// -- patching: elements keep their identity, so focus and scroll survive --------------------------------------------

const keyOf = (node) => node.nodeType === 1 ? node.dataset.key || node.id || "" : "";
const alike = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);

const patch = (from, to) => {
  if (from.nodeType !== 1) { if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue; return; }
  if (from.matches("time[data-tick]") && from.dataset.at === to.dataset.at) return;
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  if (from.matches("input, textarea, select")) return; // keep what the visitor typed or ticked
  children(from, to);
};

const children = (from, to) => {
  if (from.nodeName === "TBODY") { rows(from, to); return; }
  const byKey = new Map();
  for (const child of from.childNodes) if (keyOf(child)) byKey.set(keyOf(child), child);
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const key = keyOf(wanted);
    let found = key ? byKey.get(key) : at && !keyOf(at) && alike(at, wanted) ? at : null;
    if (found && !alike(found, wanted)) found = null;
    if (!found) { from.insertBefore(document.importNode(wanted, true), at); continue; }
    patch(found, wanted);
    if (found !== at) from.insertBefore(found, at); else at = at.nextSibling;
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
};

// Rows change in place and keep their order: nothing moves under the pointer. New rows may have to wait.
const rows = (from, to) => {
  const waits = from.dataset.rows === "wait" && Date.now() - away < 5000;
  const named = (parent) => { let place = 0; return [...parent.children].map((row) => [keyOf(row) || `#${place++}`, row]); };
  const gone = new Map(named(from));
  let last = null, newer = 0;
  for (const [key, wanted] of named(to)) {
    const found = gone.get(key);
    if (found) { patch(found, wanted); gone.delete(key); last = found; continue; }
    if (waits) { newer += 1; continue; }
    const made = document.importNode(wanted, true);
    if (last) last.after(made); else from.prepend(made);
    last = made;
  }
  // The server dropped one row at the end for each row held back at the start: keep those, or the page would run empty.
  const left = [...gone.values()];
  for (const row of left.slice(0, Math.max(0, left.length - newer))) row.remove();
  const more = document.querySelector(".newer");
  if (from.dataset.rows && more) { more.hidden = !newer; more.querySelector("b").textContent = newer.toLocaleString("en") + (newer && newer === to.children.length ? "+" : ""); }
  withheld += newer;
};

// Do not touch a region while the visitor types in it, selects text in it, or has one of its menus open.
const inUse = (region) => {
  const focus = document.activeElement;
  if (focus && region.contains(focus) && focus.matches("input:not([type=checkbox]), textarea, select")) return true;
  if (region.querySelector("details.menu[open], [data-dragged]")) return true;
  const chosen = getSelection();
  return chosen && !chosen.isCollapsed && region.contains(chosen.anchorNode);
};

const apply = (name, { html, hash }) => {
  const region = document.querySelector(`[data-live="${name}"]`);
  if (!region || region.dataset.hash === hash) return;
  if (held || inUse(region)) { stale.set(name, { html, hash }); region.dataset.stale = ""; return; }
  stale.delete(name);
  delete region.dataset.stale;
  const made = new DOMParser().parseFromString(`<div>${html}</div>`, "text/html").body.firstChild;
  withheld = 0;
  children(region, made);
  region.dataset.hash = withheld ? "" : hash;
  if (withheld) stale.set(name, { html, hash }); // show its new rows later
};

export const patchNow = (name, html, hash) => apply(name, { html, hash });
const settle = () => { for (const [name, change] of [...stale]) apply(name, change); };

// -- what the server says --------------------------------------------------------------------------------------------

const take = (state) => {
  wait = 1000;
  banner(state.problem);
  if (state.problem) { mark(false); return; }
  seen = Date.now();
  shown = state.read_at;
  setNow(state.now);
  const title = document.title.replace(/^\(\d+\) /, "");
  document.title = state.needs ? `(${state.needs}) ${title}` : title;
  const before = counted();
  for (const [name, change] of Object.entries(state.regions)) apply(name, change);
  announce(before, counted());
  tick();
  mark(true);
};

const announcer = () => document.getElementById("announce");
const counted = () => document.querySelectorAll("main tr .st.t-bad").length;
const announce = (before, after) => {
  if (after <= before || Date.now() - said < 5000) return;
  said = Date.now();
  announcer().textContent = `${after - before} more need a look`;
};

const banner = (problem) => {
  const place = document.getElementById("banner");
  body.classList.toggle("down", Boolean(problem));
  if (place.dataset.problem === (problem || "")) return;
  place.dataset.problem = problem || "";
  if (!problem) { place.replaceChildren(); return; }
  const made = document.getElementById("down").content.cloneNode(true);
  const cut = problem.search(/[:.](\s|$)/) + 1;
  made.querySelector("b").textContent = problem.slice(0, cut);
  made.querySelector("span").textContent = `${problem.slice(cut)} What you see is as of ${clock(seen)}; actions are off until it is back.`;
  place.replaceChildren(made);
};

const clock = (at) => {
  try { return new Date(at).toLocaleTimeString("en-GB", { timeZone: body.dataset.zone }); } catch { return new Date(at).toTimeString().slice(0, 8); }
};
const mark = (on) => {
  live = on;
  for (const chip of document.querySelectorAll(".live")) {
    chip.classList.toggle("held", held);
    chip.classList.toggle("lost", !live);
    chip.querySelector("span").textContent = held ? "Held" : live ? "Live" : "Not live";
    const time = chip.querySelector("time");
    if (time && !held) time.textContent = live ? clock(seen) : `as of ${clock(seen)}`;
  }
};

// -- the connection --------------------------------------------------------------------------------------------------

// Pages share the server's reads: tell it the age of this page, or it might send an older state.
const address = (path) => `${body.dataset.root}${path}?view=${encodeURIComponent(body.dataset.view)}&read_at=${shown}`;

const open = () => {
  close();
  if (document.hidden) return;
  if (!window.EventSource) { poll(); return; }
  source = new EventSource(address("/live"));
  source.onmessage = (event) => take(JSON.parse(event.data));
  source.onerror = () => {
    setTimeout(() => { if (Date.now() - seen > 3000) mark(false); }, 3000);
    close();
    timer = setTimeout(source ? open : () => poll(open), wait);
    wait = Math.min(30000, wait * 2);
  };
};

const close = () => { source?.close(); source = null; clearTimeout(timer); };

const poll = async (then) => {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    const answer = await fetch(address("/live/regions"), { headers: tag ? { "if-none-match": tag } : {} });
    if (answer.status === 200) { tag = answer.headers.get("etag") || ""; take(await answer.json()); }
    if (answer.status === 304) { seen = Date.now(); mark(true); }
    if (answer.ok && then) { then(); return; }
  } catch { mark(false); }
  if (!then) timer = setTimeout(poll, 3000); else timer = setTimeout(then, wait);
};

export const startLive = () => {
  if (!("follow" in body.dataset)) return;
  let hiding = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(close, 5000); else if (!source) open();
  });
  document.addEventListener("pointermove", () => { away = Date.now(); }, { passive: true });
  document.addEventListener("focusout", () => setTimeout(settle, 0));
  document.addEventListener("selectionchange", () => { if (getSelection()?.isCollapsed) settle(); });
  document.addEventListener("toggle", () => settle(), true);
  document.addEventListener("acted", () => setTimeout(() => poll(() => {}), 150));
  document.addEventListener("newer", () => { away = 0; settle(); poll(() => {}); });
  setInterval(() => { if (stale.size && Date.now() - away >= 5000) settle(); }, 1000); // show waiting rows after a pause
  open();
};
