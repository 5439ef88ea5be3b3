// Views: run filters that the visitor has named. They stay in this browser.
import { show, toast } from "./acts.js";

const MOST = 20;
const place = () => document.querySelector(".views");
const key = () => `mainspring-views ${document.body.dataset.root} ${place().dataset.app}`;
const here = () => new URL(place().dataset.here, location).search;

const read = () => {
  try { return new Map(Object.entries(JSON.parse(localStorage.getItem(key())) || {})); } catch { return new Map(); } // storage is off, or holds something else
};
const write = (views) => {
  try { localStorage.setItem(key(), JSON.stringify(Object.fromEntries(views))); } catch { toast({ text: "This browser refuses to keep views", bad: true }); return false; }
  draw();
  return true;
};
const keep = (name, query) => write(read().set(name, query));

const chip = ([name, query]) => {
  const made = document.getElementById("view").content.cloneNode(true), link = made.querySelector("a"), cross = made.querySelector("button");
  link.textContent = link.title = name;
  link.href = `${document.body.dataset.root}/runs${query}`;
  if (query === here()) link.setAttribute("aria-current", "true");
  cross.ariaLabel = cross.title = `Remove the view ${name}`;
  cross.addEventListener("click", () => remove(name));
  return made;
};
const draw = () => place().replaceChildren(...[...read()].sort(([one], [other]) => one.localeCompare(other)).map(chip));

const remove = (name) => {
  const views = read(), query = views.get(name), chips = [...place().children];
  const at = chips.findIndex((each) => each.contains(document.activeElement));
  views.delete(name);
  if (!write(views)) return;
  toast({ text: `View “${name}” removed`, undo: () => keep(name, query) });
  (place().children[Math.min(at, chips.length - 2)]?.querySelector("a") || document.getElementById("q")).focus();
};

const save = (event) => {
  const field = event.target.elements.view, name = field.value.trim(), views = read();
  if (!views.has(name) && views.size >= MOST) {
    event.preventDefault();
    field.setCustomValidity(`There are ${MOST} views already. Replace or remove one.`);
    field.reportValidity();
  } else if (keep(name, here())) toast({ text: `View “${name}” saved` });
};

export const startViews = () => {
  if (!place()) return;
  for (const button of document.querySelectorAll("[data-do=save-view], [data-do=copy-link]")) button.hidden = false;
  document.querySelector("[data-do=copy-link]").dataset.copy = location.href;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do=save-view]");
    if (button) show(document.getElementById("save-view").content.cloneNode(true).childNodes, button);
  });
  document.addEventListener("submit", (event) => { if (event.target.matches("[data-save]")) save(event); });
  document.addEventListener("input", (event) => { if (event.target.name === "view") event.target.setCustomValidity(""); });
  addEventListener("storage", draw); // another tab changed them
  draw();
};
