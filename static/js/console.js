// What every page does: theme, menu, notices, keys of lists, copying, dialogs.
"use strict";

const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;

// -- theme -----------------------------------------------------------------------------------------------------------

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch (error) {
    /* storage may be switched off: the choice holds for this page */
  }
  document.dispatchEvent(new CustomEvent("theme:changed"));
}

// -- menus of rows ---------------------------------------------------------------------------------------------------

// A menu lies above its table, which scrolls by itself and would cut the menu off. It opens below its button, or higher
// where the window ends.
document.addEventListener("toggle", (event) => {
  const menu = event.target;
  if (event.newState !== "open" || !menu.matches(".row-menu")) return;
  const button = document.querySelector(`[popovertarget="${menu.id}"]`).getBoundingClientRect();
  menu.style.top = `${Math.max(8, Math.min(button.bottom + 4, innerHeight - menu.offsetHeight - 8))}px`;
  menu.style.left = `${Math.max(8, button.right - menu.offsetWidth)}px`;
}, true);

// -- clicks ----------------------------------------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const target = event.target;
  if (target.closest("[data-theme-switch]")) switchTheme();

  const toggle = target.closest("[data-toggle]");
  if (toggle) {
    const open = document.getElementById(toggle.dataset.toggle).classList.toggle("open");
    toggle.setAttribute("aria-expanded", String(open));
  }
  const dismiss = target.closest("[data-dismiss]");
  if (dismiss) dismiss.closest(".notice").remove();

  const repair = target.closest("[data-set]");
  if (repair) setField(repair.dataset.set, repair.dataset.value);

  const opener = target.closest("[data-dialog]");
  if (opener) openDialog(opener.dataset.dialog);
  const closer = target.closest("[data-close]");
  if (closer) closer.closest("dialog").close();

  if (target.closest("[data-palette]")) openPalette(event);

  const copier = target.closest("[data-copy]");
  if (copier) copy(copier);

  // Only one menu at a time, and none after a click beside it.
  for (const menu of document.querySelectorAll("details.person[open]")) if (!menu.contains(target)) menu.open = false;
});

// A one-click repair types for the person: listeners of the field receive it as if it was typed.
function setField(name, value) {
  const field = document.querySelector(`[name="${name}"]`);
  field.value = value;
  for (let fold = field.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

async function copy(button) {
  const field = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(field.value ?? field.textContent);
  } catch (error) {
    if (field.select) field.select();
    else window.getSelection().selectAllChildren(field); // without the clipboard's permission the person copies by hand
    return;
  }
  button.lastChild.textContent = "Copied";
}

function openDialog(id) {
  if (id === "keys") showKeysOfPage();
  document.getElementById(id)?.showModal();
}

// Only the keys that do something on this page, and those of its own buttons.
function showKeysOfPage() {
  const keys = document.querySelector("#keys dl");
  if (!keys) return;
  for (const own of keys.querySelectorAll("[data-own]")) own.remove();
  for (const pair of keys.querySelectorAll("[data-where]")) pair.hidden = !document.querySelector(pair.dataset.where);
  for (const button of [...document.querySelectorAll("main [data-key]")].reverse()) {
    const [pair, term, key, words] = ["div", "dt", "kbd", "dd"].map((one) => document.createElement(one));
    pair.dataset.own = "";
    key.textContent = button.dataset.key;
    words.textContent = nameOf(button);
    term.append(key);
    pair.append(term, words);
    keys.prepend(pair);
  }
}

// A dialog's form that succeeded closes it.
document.addEventListener("htmx:afterRequest", (event) => {
  const dialog = event.detail.elt.closest("dialog");
  if (dialog && event.detail.successful && event.detail.elt.hasAttribute("data-closes")) dialog.close();
});

// -- keys ------------------------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") return openPalette(event);
  if (document.querySelector("dialog[open]")) return;
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const keyed = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (keyed && !event.repeat) return keyed.click();
  if (event.key === "?") return openDialog("keys");
  if (event.key === "/") return focusOn(event, "/");
  if (event.key === "j" || event.key === "k") return moveInList(event, event.key === "j" ? 1 : -1);
  if (event.key === "Enter") return openFromList(event);
  if (event.key === "x") return document.querySelector("[data-row].chosen input[name=pick]")?.click();
  if (event.key === "p") return document.querySelector("[data-row].chosen [data-pin]")?.click();
  if (event.key === "o") return document.querySelector("[data-row].chosen [data-peek]")?.click();
  if (event.key === "Escape") return document.querySelector("[data-panel-close]")?.click();
  if (event.key === "ArrowLeft" || event.key === "ArrowRight") return follow(event);
});

// -- palette ---------------------------------------------------------------------------------------------------------

const palette = document.getElementById("palette");

function openPalette(event) {
  if (!palette) return;
  event.preventDefault();
  const field = palette.querySelector("input");
  if (!palette.open) palette.showModal();
  field.value = "";
  field.focus();
  htmx.trigger(field, "palette");
}

// The buttons and tabs of the page itself. An entry of the palette clicks its button, so that rights, forms and questions
// are those of the page.
const ACTS = "main :is(.page-head, .list-foot, .card > header) :is(button, a.button), main .tabs a, [data-row].chosen .row-menu :is(button, a)";
const nameOf = (one) => (one.getAttribute("aria-label") ?? one.textContent).replace(/\s+/g, " ").trim();

function actsOfPage(typed) {
  const words = typed.toLowerCase().split(/\s+/);
  return [...document.querySelectorAll(ACTS)].filter((one) => {
    const name = nameOf(one).toLowerCase();
    const usable = !one.disabled && !one.hasAttribute("aria-current") && (one.checkVisibility() || one.closest("[popover]"));
    return usable && name && words.every((word) => name.includes(word));
  });
}

function offerActs() {
  const found = palette.querySelector("[data-for]");
  if (!found) return;
  const linked = new Set([...found.querySelectorAll("a[href]")].map((one) => one.href));
  const acts = actsOfPage(found.dataset.for).filter((one) => !linked.has(one.href));
  if (!acts.length) return;
  const group = document.createElement("div");
  const title = document.createElement("p");
  title.className = "palette-group";
  title.textContent = "On this page";
  group.append(title);
  for (const act of acts) {
    const hit = document.createElement("a");
    hit.className = "palette-hit";
    hit.role = "option";
    hit.append(nameOf(act));
    const part = act.closest(".card > header")?.querySelector("h2");
    if (part) {
      const under = document.createElement("span");
      under.className = "quiet small";
      under.textContent = nameOf(part);
      hit.append(under);
    }
    hit.addEventListener("click", () => {
      palette.close();
      act.focus();
      act.click();
    });
    group.append(hit);
  }
  // The nearest name first, as among the others.
  const near = !found.dataset.for || acts.some((one) => nameOf(one).toLowerCase().startsWith(found.dataset.for.toLowerCase()));
  found.querySelector("[data-none]")?.remove();
  if (near) found.prepend(group);
  else found.append(group);
}

if (palette) {
  const hits = () => [...palette.querySelectorAll(".palette-hit")];
  const choose = (hit) => {
    for (const [number, one] of hits().entries()) {
      one.id = `palette-hit-${number}`;
      one.setAttribute("aria-selected", String(one === hit));
    }
    palette.querySelector("input").setAttribute("aria-activedescendant", hit?.id ?? "");
    if (hit) hit.scrollIntoView({ block: "nearest" });
  };
  // Who types and presses Enter at once means what was typed, and not what stood there before.
  const fresh = () => palette.querySelector("[data-for]")?.dataset.for === palette.querySelector("input").value.trim();
  let entered = false;
  palette.addEventListener("htmx:afterSwap", () => {
    offerActs();
    const first = hits()[0];
    choose(palette.querySelector("[data-for]")?.dataset.for ? first : undefined);
    // An action is never done unseen: it waits for another Enter.
    if (entered && fresh() && first?.href) first.click();
    if (fresh()) entered = false;
  });
  palette.addEventListener("keydown", (event) => {
    const all = hits();
    const now = all.findIndex((one) => one.getAttribute("aria-selected") === "true");
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (all.length) choose(all.at(event.key === "ArrowDown" ? (now + 1) % all.length : Math.max(now, 0) - 1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      entered = !fresh();
      if (!entered) all[now]?.click();
    } else {
      entered = false;
    }
  });
  palette.addEventListener("click", (event) => event.target === palette && palette.close());
}

function focusOn(event, shortcut) {
  const field = document.querySelector(`[data-shortcut="${shortcut}"]`);
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
}

function moveInList(event, by) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return;
  event.preventDefault();
  const now = rows.findIndex((row) => row.classList.contains("chosen"));
  const next = rows[Math.min(rows.length - 1, Math.max(0, now + by))];
  rows.forEach((row) => row.classList.toggle("chosen", row === next));
  next.querySelector("a").focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  if (document.querySelector("#panel.open")) next.querySelector("[data-peek]")?.click();
}

// The row that is shown beside the list is marked in it.
function markShown() {
  const shown = document.querySelector("[data-panel]");
  if (!shown) return;
  for (const row of document.querySelectorAll("[data-row]")) {
    row.classList.toggle("chosen", row.querySelector("[data-peek]")?.dataset.peek === shown.dataset.panel);
  }
}
document.addEventListener("htmx:afterSettle", markShown);
markShown();

// A row of tabs that is wider than the screen begins where the current one can be seen.
// Later only in the part that was replaced: a person may have moved the row of another.
function showCurrentTab(part) {
  for (const tab of part.querySelectorAll(".tabs [aria-current]")) {
    const [row, own] = [tab.parentElement.getBoundingClientRect(), tab.getBoundingClientRect()];
    tab.parentElement.scrollLeft += own.left + own.width / 2 - (row.left + row.width / 2);
  }
}
document.addEventListener("htmx:afterSettle", (event) => showCurrentTab(event.target));
showCurrentTab(document);

function openFromList(event) {
  const row = document.querySelector("[data-row].chosen");
  if (!row || event.target.closest("a, button, summary")) return;
  row.querySelector("a").click();
}

function follow(event) {
  const link = document.querySelector(event.key === "ArrowLeft" ? "[data-previous]" : "[data-following]");
  if (link) link.click();
}

// A click anywhere on a list's row opens it; links and fields in it keep their own meaning.
document.addEventListener("click", (event) => {
  const row = event.target.closest("[data-row]");
  if (!row || event.target.closest("a, button, input, label, select, summary") || getSelection().toString()) return;
  row.querySelector("a").click();
});

// -- forms -----------------------------------------------------------------------------------------------------------

// Rows of a list that are chosen for a button ("least most"): how many are, and which buttons that is right for.
function countPicks(form) {
  const boxes = [...form.querySelectorAll("input[name=pick]")];
  const n = boxes.filter((one) => one.checked).length;
  for (const button of form.querySelectorAll("[data-picks]")) {
    const [least, most] = button.dataset.picks.split(" ").map(Number);
    button.disabled = n < least || n > most;
  }
  const all = form.querySelector("[data-pick-all]");
  if (all) {
    all.checked = n > 0 && n === boxes.length;
    all.indeterminate = n > 0 && n < boxes.length;
  }
  const said = form.querySelector("[data-picked]");
  if (!said) return;
  said.dataset.none ??= said.textContent;
  said.textContent = n ? `${n} chosen` : said.dataset.none;
}
function countAllPicks() {
  for (const form of document.querySelectorAll("[data-pick]")) countPicks(form);
}
document.addEventListener("change", (event) => {
  const form = event.target.closest("[data-pick]");
  if (!form) return;
  if (event.target.matches("[data-pick-all]")) for (const box of form.querySelectorAll("input[name=pick]")) box.checked = event.target.checked;
  countPicks(form);
});
// Shift and a click choose all rows from the last one on.
let lastPick = null;
document.addEventListener("click", (event) => {
  const box = event.target;
  if (!box.matches("[data-pick] input[name=pick]")) return;
  const boxes = [...box.closest("[data-pick]").querySelectorAll("input[name=pick]")];
  const [from, to] = [boxes.indexOf(lastPick), boxes.indexOf(box)].sort((a, b) => a - b);
  if (event.shiftKey && from >= 0) for (const one of boxes.slice(from, to + 1)) one.checked = box.checked;
  lastPick = box;
});
document.addEventListener("htmx:afterSettle", countAllPicks);
addEventListener("pageshow", countAllPicks); // also after the way back, where a browser keeps what was ticked
countAllPicks();

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-print]")) print();
});

// A part that replaces itself, as live ones do each few seconds, keeps the focus and what a person unfolded.
const refreshed = new WeakMap(); // by request
const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
const signature = (one) => [one.tagName, one.id, one.name, one.getAttribute("href"), one.form?.getAttribute("action"), one.getAttribute("aria-label"), one.textContent.trim()].join("|");
const called = (root, name) => [...root.querySelectorAll(FOCUSABLE)].filter((one) => signature(one) === name);

document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const { target: root, requestConfig, xhr } = detail;
  if (root !== requestConfig?.elt) return;
  const focus = root.contains(document.activeElement) ? document.activeElement : null;
  const name = focus && signature(focus);
  const open = [...root.querySelectorAll("details")].map((one) => one.open);
  refreshed.set(xhr, { focused: focus !== null, name, place: focus ? called(root, name).indexOf(focus) : 0, open });
});

document.addEventListener("htmx:afterSwap", ({ target: root, detail }) => {
  const before = root instanceof Element && refreshed.get(detail?.xhr); // white space is settled too
  if (!before) return;
  const folds = [...root.querySelectorAll("details")];
  if (folds.length === before.open.length) folds.forEach((one, number) => (one.open = before.open[number]));
  if (before.focused && focusAgain(root, before)) before.focused = false;
});

// What a script draws, such as a chart, is there after the part has settled. What is gone leaves the focus to the part.
document.addEventListener("htmx:afterSettle", ({ target: root, detail }) => {
  const before = root instanceof Element && refreshed.get(detail?.xhr); // white space is settled too
  if (!before) return;
  refreshed.delete(detail.xhr);
  if (!before.focused) return;
  requestAnimationFrame(() => {
    if (document.activeElement !== document.body || focusAgain(root, before)) return;
    root.tabIndex = -1;
    root.focus({ preventScroll: true });
  });
});

function focusAgain(root, { name, place }) {
  const like = called(root, name);
  (like[place] || like[0])?.focus({ preventScroll: true });
  return like.length > 0;
}

// A part of a form that comes from the server knows what the form held when it was asked for. What a person changed since
// then stays as it is.
const held = new WeakMap(); // by request: the values of its form
const valuesOf = (form) =>
  new Map(
    [...form.elements]
      .filter((one) => one.name && one.type !== "file" && one.type !== "hidden")
      .map((one) => (one.type === "radio" || one.type === "checkbox" ? [`${one.name}=${one.value}`, one.checked] : [one.name, one.value])),
  );

document.addEventListener("htmx:beforeSend", (event) => {
  const form = event.detail.elt.closest("form");
  if (form) held.set(event.detail.xhr, { form, before: valuesOf(form) });
});

document.addEventListener("htmx:beforeSwap", (event) => {
  const request = held.get(event.detail.xhr);
  if (!request) return;
  request.typed = [...valuesOf(request.form)].filter(([name, value]) => request.before.has(name) && request.before.get(name) !== value);
});

document.addEventListener("htmx:afterSwap", (event) => {
  const request = held.get(event.detail.xhr);
  if (!request?.typed?.length) return;
  const typed = new Map(request.typed);
  const now = valuesOf(request.form);
  for (const field of request.form.elements) {
    const box = field.type === "radio" || field.type === "checkbox";
    const name = box ? `${field.name}=${field.value}` : field.name;
    if (!typed.has(name) || now.get(name) === typed.get(name)) continue;
    if (box) field.checked = typed.get(name);
    else field.value = typed.get(name);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
});

// The network is away: say so, since nothing else on the page would.
document.addEventListener("htmx:sendError", () => {
  const notice = document.createElement("div");
  notice.className = "notice";
  notice.textContent = "The server can't be reached. Nothing was sent; try again in a moment.";
  document.getElementById("notices").replaceChildren(notice);
});

// Good news goes by itself, but not from under a pointer or the keyboard; what went wrong stays until it is dismissed.
function goLater(notice) {
  const wait = notice.querySelector("form") ? 60000 : 12000; // one that can be undone stays longer
  setTimeout(() => (notice.matches(":hover, :focus-within") ? goLater(notice) : notice.remove()), wait);
}
for (const notice of document.querySelectorAll(".notice.success")) goLater(notice);
