// Selected rows, and suggestions for a filter.
const boxes = () => [...document.querySelectorAll("tbody input[type=checkbox][form]")];
const page = () => document.querySelector("[data-do=select-page]");

const count = () => {
  const all = boxes(), on = all.filter((box) => box.checked), chosen = on.length;
  for (const box of all) if (box.checked) box.closest("tr").setAttribute("aria-selected", "true"); else box.closest("tr").removeAttribute("aria-selected");
  const words = document.querySelector("[data-chosen]"), whole = document.querySelector("[data-all]")?.checked;
  if (words) { words.textContent = whole ? "All that match" : chosen ? `${chosen} selected` : "Select runs"; words.nextElementSibling.hidden = whole; }
  for (const button of document.querySelectorAll("[data-verb]")) { // each shows the number of rows it applies to
    const label = button.querySelector("span"), able = on.filter((box) => box.dataset.can.includes(button.dataset.verb)).length;
    label.textContent = label.textContent.replace(/ \d+$/, "") + (whole || !able ? "" : ` ${able}`);
    button.disabled = !whole && chosen > 0 && !able;
    button.title = button.disabled ? "none of the selected runs allows it" : "";
  }
  if (page()) { page().checked = chosen > 0 && chosen === all.length; page().indeterminate = chosen > 0 && chosen < all.length; }
};

// The browser compares suggestions with the whole text of a field, so each one begins with the present text.
const offer = (field) => {
  const list = document.getElementById(field.getAttribute("list"));
  if (!list) return;
  list.words ??= [...list.options].map((option) => option.value);
  const at = field.value.lastIndexOf(" ") + 1, before = field.value.slice(0, at), last = field.value.slice(at);
  const fits = list.words.filter((word) => word.startsWith(last) && word !== last).slice(0, 30);
  list.replaceChildren(...fits.map((word) => Object.assign(document.createElement("option"), { value: before + word })));
};

export const startChoosing = () => {
  document.addEventListener("change", (event) => {
    if (event.target === page()) for (const box of boxes()) box.checked = event.target.checked;
    if (event.target.closest("[form], [data-all], [data-do=select-page]")) count();
  });
  document.addEventListener("input", (event) => { if (event.target.matches("input[list]")) offer(event.target); });
  const choose = (on) => { const whole = document.querySelector("[data-all]"); if (whole) whole.checked = on; for (const box of boxes()) box.checked = on; count(); };
  document.addEventListener("clear-chosen", () => choose(false));
  document.addEventListener("choose-all", () => choose(true));
};
