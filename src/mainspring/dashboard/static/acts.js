// Actions: buttons act in place and show the result; an action that asks first opens a dialog.
const box = () => document.getElementById("dialog");
let opener = null;

export const toast = (said) => {
  const made = document.createElement("div");
  made.className = said.bad ? "toast bad" : "toast";
  const text = document.createElement("span");
  text.textContent = said.text;
  made.append(document.getElementById(said.bad ? "toast-bad" : "toast-ok").content.cloneNode(true), text);
  if (said.link) {
    const link = document.createElement("a");
    link.href = said.link;
    link.textContent = "See it";
    made.append(link);
  }
  if (said.undo) {
    const undo = document.createElement("button");
    undo.textContent = "Undo";
    undo.addEventListener("click", () => { made.remove(); said.undo.call ? said.undo() : send(said.undo, new URLSearchParams({ csrf: document.body.dataset.csrf })); });
    made.append(undo);
  }
  document.getElementById("toasts").append(made);
  setTimeout(() => made.remove(), said.bad ? 15000 : 10000);
};

const send = async (url, body) => {
  try {
    const answer = await fetch(url, { method: "POST", body, headers: { "x-part": "1" } });
    const said = await answer.json();
    toast(said);
    document.dispatchEvent(new Event("acted")); // also after a refusal: the page shows why
    return said;
  } catch {
    const said = { text: "Nobody answers; nothing is known of it", bad: true };
    toast(said);
    return said;
  }
};

// A part of a page: `fetchPart` gets its response, `nodesOf` its content.
export const fetchPart = (url) => fetch(url, { headers: { "x-part": "1" } });
export const nodesOf = async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html").body.childNodes;

const ask = async (url, from) => {
  const answer = await fetchPart(url);
  if (answer.redirected || !answer.ok) { location.href = url; return; }
  show(await nodesOf(answer), from);
};

export const closeMenus = (except) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!except || !menu.contains(except)) menu.open = false;
};

// A dialog takes the focus, and returns it to the element that opened it.
export const show = (nodes, from) => {
  const dialog = box();
  dialog.replaceChildren(...nodes);
  closeMenus();
  const title = dialog.querySelector("h2");
  if (title) { title.id = "dialog-title"; dialog.setAttribute("aria-labelledby", "dialog-title"); }
  opener = from;
  if (!dialog.open) dialog.showModal();
  check(dialog);
  (dialog.querySelector("input:not([type=hidden]), select, textarea") || dialog.querySelector("button")).focus();
};

// Compare the required text while the visitor types.
const check = (form) => {
  const typed = form.querySelector("[data-typed]");
  if (typed) form.querySelector(".row button").disabled = typed.value.trim() !== typed.dataset.typed;
};

// Explain a schedule while the visitor types.
let foreseen = 0;
const foresee = (form) => {
  const place = form.querySelector("[data-preview]");
  if (!place) return;
  clearTimeout(foreseen);
  foreseen = setTimeout(async () => {
    const asked = new URLSearchParams();
    for (const name of ["kind", "when", "timezone", "exclude"]) asked.set(name, form.elements[name].value);
    const answer = await fetchPart(`${place.dataset.preview}?${asked}`);
    if (answer.ok) place.replaceChildren(...await nodesOf(answer));
  }, 200);
};

export const startActs = () => {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-ask]");
    if (link && !event.ctrlKey && !event.metaKey) { event.preventDefault(); ask(link.href, link); }
    if (event.target.closest("dialog [data-close]")) { event.preventDefault(); event.target.closest("dialog").close(); }
  });
  document.addEventListener("change", (event) => {
    const form = event.target.matches("dialog [data-again]") && event.target.form; // the numbers depend on it
    if (form) ask(`${form.action}?${new URLSearchParams(new FormData(form))}`, opener);
  });
  document.addEventListener("input", (event) => { const form = event.target.closest("form.ask"); if (form) { check(form); foresee(form); } });
  document.addEventListener("submit", async (event) => {
    if (event.target.matches("#bulk")) { // not by `.id`: its boxes are named so
      event.preventDefault();
      ask(`${event.submitter.getAttribute("formaction")}?${new URLSearchParams(new FormData(event.target))}`, event.submitter);
    }
    const form = event.target.closest("[data-act]");
    if (!form) return;
    event.preventDefault();
    const button = event.submitter || form.querySelector("button");
    button.disabled = true;
    button.classList.add("busy-now");
    const said = await send(button.getAttribute("formaction") || form.action, new URLSearchParams(new FormData(form, event.submitter)));
    button.disabled = false;
    button.classList.remove("busy-now");
    const dialog = form.closest("dialog");
    if (said.bad) return;
    if (dialog) dialog.close();
    document.dispatchEvent(new Event("clear-chosen"));
    closeMenus();
    if (said.go) location.href = document.body.dataset.root + said.go;
  });
  box().addEventListener("close", () => { opener?.isConnected && opener.focus(); opener = null; });
  for (const form of document.querySelectorAll("form.ask")) check(form);
  const first = document.querySelector("#toasts .toast");
  if (first) setTimeout(() => first.remove(), 10000);
};
