// Keys for pages, rows and search. Off in fields; visitors can turn them off everywhere.
import { fetchPart, nodesOf } from "./acts.js";

const goes = { o: "/", j: "/jobs", t: "/timeline", r: "/runs", f: "/flows", q: "/queues", e: "/errors", n: "/nodes", s: "/system" };
const OFF = "mainspring-keys-off";
let led = "", last = null;

const ROW = ":is(tr, li)[tabindex], a.eg";
const rows = () => [...document.getElementById("main").querySelectorAll(ROW)];
const row = () => document.activeElement?.closest?.(ROW);
const press = (key) => {
  const inside = row()?.querySelector(`[data-key="${key}"]`) || document.querySelector(`.head-tools [data-key="${key}"]`);
  inside?.click();
};
const walk = (step) => {
  const all = rows();
  const at = all.indexOf(row());
  all[Math.min(all.length - 1, Math.max(0, at + step))]?.focus();
};
const select = (toHere) => {
  const here = row(), all = rows();
  if (!here) return;
  const from = toHere && last ? all.indexOf(last) : all.indexOf(here);
  const [a, b] = [from, all.indexOf(here)].sort((one, other) => one - other);
  const box = here.querySelector("input[type=checkbox]");
  if (!box) return;
  const on = toHere ? true : !box.checked;
  for (const each of all.slice(a, b + 1)) {
    const tick = each.querySelector("input[type=checkbox]");
    if (tick && tick.checked !== on) tick.click();
  }
  last = here;
};
const keys = {
  j: () => walk(1), k: () => walk(-1),
  Enter: () => row()?.querySelector("a.name, p a")?.click(),
  x: () => select(false), X: () => select(true),
  r: () => press("r"), c: () => press("c"),
  ".": () => {
    const menu = row() ? row().querySelector("details.menu") : document.querySelector(".head-tools details.menu");
    if (menu) menu.open = true;
    (menu?.querySelector(".sheet .btn") || row()?.querySelector(".row-keys .btn, .row-acts .btn"))?.focus();
  },
  Escape: () => {
    const menu = document.querySelector("details.menu[open]"), inside = row();
    if (menu) { menu.open = false; menu.querySelector("summary").focus(); }
    else if (inside && inside !== document.activeElement) inside.focus();
    else document.dispatchEvent(new Event("clear-chosen"));
  },
  n: () => document.dispatchEvent(new Event("newer")),
  "[": () => document.querySelector("[data-page=newer]")?.click(),
  "]": () => document.querySelector("[data-page=older]")?.click(),
  p: () => document.querySelector("[data-do=hold]")?.click(),
  z: () => document.querySelector("[data-do=zone]")?.click(),
  t: () => document.querySelector("[data-do=theme]")?.click(),
  e: () => { const why = document.querySelector(".explain"); if (why) { why.tabIndex = -1; why.focus(); } },
  "?": () => document.getElementById("keys").showModal(),
  "/": () => document.dispatchEvent(new Event("palette")),
};

// -- search ----------------------------------------------------------------------------------------------------------

const palette = () => document.getElementById("palette");
let asked = 0;
const search = async (text) => {
  const mine = ++asked;
  const answer = await fetchPart(`${document.body.dataset.root}/search?q=${encodeURIComponent(text)}`);
  if (!answer.ok || mine !== asked) return;
  palette().querySelector(".found").replaceChildren(...await nodesOf(answer));
  choose(0);
};
const items = () => [...palette().querySelectorAll(".found li")];
const choose = (number) => items().forEach((item, at) => item.setAttribute("aria-selected", String(at === number)));
const moved = (step) => {
  const all = items(), at = all.findIndex((item) => item.getAttribute("aria-selected") === "true");
  choose(Math.min(all.length - 1, Math.max(0, at + step)));
  items().find((item) => item.getAttribute("aria-selected") === "true")?.scrollIntoView({ block: "nearest" });
};

export const startKeys = () => {
  const off = document.querySelector("[data-do=keys-off]");
  off.checked = localStorage.getItem(OFF) === "1";
  off.addEventListener("change", () => localStorage.setItem(OFF, off.checked ? "1" : "0"));
  document.addEventListener("palette", () => { palette().showModal(); const field = palette().querySelector("input"); field.value = ""; search(""); field.focus(); });
  palette().addEventListener("input", (event) => search(event.target.value));
  palette().addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") { moved(1); event.preventDefault(); }
    if (event.key === "ArrowUp") { moved(-1); event.preventDefault(); }
    if (event.key === "Enter") { event.preventDefault(); palette().querySelector(".found li[aria-selected=true] a")?.click(); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select")) return;
    if (localStorage.getItem(OFF) === "1" && event.key.length === 1) return;
    const menu = event.key === "Escape" && event.target.closest?.("details.menu[open]");
    if (menu) { menu.open = false; menu.querySelector("summary").focus(); return; }
    if (led === "g" && goes[event.key]) { led = ""; location.href = document.body.dataset.root + goes[event.key]; return; }
    if (led === "*" && event.key === "a") { led = ""; document.dispatchEvent(new Event("choose-all")); return; }
    led = event.key;
    if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
    if (keys[event.key]) { keys[event.key](); if (event.key !== "Enter") event.preventDefault(); }
  });
};
