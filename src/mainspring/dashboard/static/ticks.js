// Countdowns, ages and elapsed times tick here, by the store's clock.
let ahead = 0; // milliseconds by which the store's clock is ahead of ours

export const setNow = (us) => { if (us) ahead = us / 1000 - Date.now(); };

const words = (ms) => {
  if (ms < 100) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10000) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  const parts = [[Math.floor(s / 86400), "d"], [Math.floor(s / 3600) % 24, "h"], [Math.floor(s / 60) % 60, "min"], [s % 60, "s"]];
  while (parts.length > 1 && !parts[0][0]) parts.shift();
  return parts.slice(0, 2).filter(([n, unit]) => n || unit === "s").map(([n, unit]) => `${n} ${unit}`).join(" ") || "0 s";
};
// A clock that ticks each second shows no tenths.
const whole = (ms) => (ms < 10000 ? `${Math.max(0, Math.round(ms / 1000))} s` : words(ms));

export const tick = () => {
  const now = Date.now() + ahead;
  for (const at of document.querySelectorAll("time[data-tick]")) {
    const left = at.dataset.at / 1000 - now;
    const text = { ago: `${whole(-left)} ago`, age: whole(-left), left: left > 0 ? `in ${whole(left)}` : "due", down: left > 0 ? whole(left) : "due" }[at.dataset.tick];
    if (at.textContent !== text) at.textContent = text;
  }
};

export const startTicks = () => {
  setNow(Number(document.body.dataset.now));
  setInterval(() => { if (!document.hidden) tick(); }, 1000);
};
