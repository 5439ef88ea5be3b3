// Drag over a timeline to show that range. Links around it do the same without a script.
const LEAST_PIXELS = 8;
const ground = (target) => target.closest?.("[data-brush]")?.querySelector(".track.axis svg");
let begun = null;

const share = (box, x) => Math.min(1, Math.max(0, (x - box.left) / box.width));
const end = () => { begun?.shade?.remove(); begun?.area.removeAttribute("data-dragged"); begun = null; };

const move = (event) => {
  if (!begun || Math.abs(event.clientX - begun.x) < LEAST_PIXELS) return;
  if (!begun.shade) {
    begun.shade = Object.assign(document.createElement("div"), { className: "brushed" });
    begun.area.append(begun.shade);
  }
  const box = begun.svg.getBoundingClientRect(), left = begun.area.getBoundingClientRect().left;
  const [first, last] = [begun.x, event.clientX].map((x) => share(box, x)).sort((a, b) => a - b);
  begun.shade.style.left = `${box.left - left + first * box.width}px`;
  begun.shade.style.width = `${(last - first) * box.width}px`;
};

const drop = (event) => {
  if (!begun?.shade) { end(); return; }
  const box = begun.svg.getBoundingClientRect(), { since, until } = begun.area.dataset;
  const at = [begun.x, event.clientX].map((x) => share(box, x)).sort((a, b) => a - b)
    .map((part) => Number(since) + part * (until - since));
  const there = new URL(location.href);
  there.searchParams.delete("range");
  const seconds = (ms) => new Date(Math.round(ms / 1000) * 1000).toISOString().replace(".000", "");
  there.searchParams.set("from", seconds(at[0]));
  there.searchParams.set("to", seconds(Math.max(at[1], at[0] + 60000)));
  end();
  location.assign(there);
};

export const startBrush = () => {
  document.addEventListener("pointerdown", (event) => {
    const svg = ground(event.target);
    if (!svg || event.button || event.pointerType === "touch" || !event.target.closest("svg.chart")) return;
    begun = { x: event.clientX, svg, area: svg.closest("[data-brush]") };
    begun.area.dataset.dragged = ""; // keeps updates from replacing it during the drag
  });
  document.addEventListener("pointermove", move);
  document.addEventListener("pointerup", drop);
  document.addEventListener("pointercancel", end);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") end(); });
  document.addEventListener("dragstart", (event) => { if (ground(event.target)) event.preventDefault(); });
};
