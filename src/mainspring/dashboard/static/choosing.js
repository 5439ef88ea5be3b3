// Rows that are chosen, and what may be typed into a filter next.
const boxes = () => [...document.querySelectorAll("tbody input[type=checkbox][form]")];
const page = () => document.querySelector("[data-do=select-page]");

const count = () => {
  const all = boxes(), chosen = all.filter((box) => box.checked).length;
  const words = document.querySelector("[data-chosen]");
  if (words) words.textContent = chosen ? `${chosen} selected` : "Select runs";
  if (page()) { page().checked = chosen > 0 && chosen === all.length; page().indeterminate = chosen > 0 && chosen < all.length; }
};

// A field offers words: the browser compares the whole text with them, so they are made of what stands there already.
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
  document.addEventListener("clear-chosen", () => { for (const box of document.querySelectorAll("input[form=bulk], [data-all]")) box.checked = false; count(); });
};
