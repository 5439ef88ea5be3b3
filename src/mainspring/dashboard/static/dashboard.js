// Everything works without this script; it adds live updates, keys, dialogs and tooltips.
import { startLive, hold, isHeld } from "./live.js";
import { closeMenus, startActs, toast } from "./acts.js";
import { startKeys } from "./keys.js";
import { startTicks } from "./ticks.js";
import { startChoosing } from "./choosing.js";
import { startBrush } from "./brush.js";
import { startViews } from "./views.js";

const root = document.documentElement;
const narrow = document.body.dataset.phone;
if (narrow && matchMedia("(max-width: 820px)").matches) location.replace(`?${narrow}`);
const path = document.body.dataset.root || "/";
const keep = (name, value) => {
  const age = value ? 31536000 : 0;
  document.cookie = `mainspring_${name}=${encodeURIComponent(value)}; path=${path}; max-age=${age}; samesite=strict`;
};

const turn = () => {
  const order = ["", "light", "dark"];
  const next = order[(order.indexOf(root.dataset.theme || "") + 1) % 3];
  if (next) root.dataset.theme = next; else delete root.dataset.theme;
  keep("theme", next);
  say(next ? `${next} theme` : "theme of the system");
};

const zones = () => {
  const mine = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const own = document.body.dataset.appZone, order = [...new Set([own, mine, "UTC"])];
  const next = order[(order.indexOf(document.body.dataset.zone) + 1) % order.length];
  keep("zone", next === own ? "" : next);
  location.reload();
};

export const say = (text) => { document.getElementById("announce").textContent = text; };

const take = async (text, label) => {
  try { await navigator.clipboard.writeText(text); } catch { // missing without https, except on localhost
    toast({ text: `The browser does not let this page copy. Select it here: ${text}`, bad: true });
    return;
  }
  if (!label) { toast({ text: "Copied" }); return; }
  const before = label.textContent;
  label.textContent = "Copied";
  setTimeout(() => { label.textContent = before; }, 1500);
};

const doers = { newer: () => document.dispatchEvent(new Event("newer")), theme: turn, zone: zones, hold: () => hold(!isHeld()), search: () => document.dispatchEvent(new Event("palette")) };
document.addEventListener("click", (event) => {
  const at = event.target.closest("[data-do]");
  if (at && doers[at.dataset.do]) doers[at.dataset.do]();
  const copy = event.target.closest("[data-copy]");
  if (copy) take(copy.dataset.copy, copy.querySelector("span"));
  closeMenus(event.target);
});

// One tooltip for all charts; arrow keys move through the steps of the focused chart.
const tip = document.querySelector(".tip");
const show = (at) => {
  if (!at) { tip.hidden = true; return; }
  tip.textContent = at.dataset.tip;
  tip.hidden = false;
  const box = at.getBoundingClientRect(), size = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, box.left + box.width / 2 - size.width / 2), innerWidth - size.width - 8);
  const top = box.top - size.height - 8;
  tip.style.left = `${left}px`; // set through the DOM, which the content policy allows
  tip.style.top = `${top < 8 ? box.bottom + 8 : top}px`;
};
document.addEventListener("mouseover", (event) => show(event.target.closest?.("[data-tip]")));
let step = -1, walked = null;
document.addEventListener("keydown", (event) => {
  const chart = document.activeElement?.closest?.("svg.chart");
  if (!chart || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  const steps = [...chart.querySelectorAll("[data-tip]")];
  if (!steps.length) return;
  if (walked !== chart) { walked = chart; step = steps.length; }
  step = Math.min(steps.length - 1, Math.max(0, step + (event.key === "ArrowRight" ? 1 : -1)));
  show(steps[step]);
  say(steps[step].dataset.tip);
  event.preventDefault();
});
document.addEventListener("focusout", () => { tip.hidden = true; });

export { patchNow as patchForTests } from "./live.js";

startTicks();
startChoosing();
startBrush();
startViews();
startActs();
startKeys();
startLive();
