// Names of members after an @ in a comment.
"use strict";

const MENTION = /(?:^|[\s(])@([\w.+-]*)$/; // at the end of the text before the caret

let offer = null; // the open list: its field and its element
let namesAsked = 0;

function closeOffer() {
  offer?.list.remove();
  offer?.field.removeAttribute("aria-activedescendant");
  offer = null;
}

function chooseName(index) {
  const all = [...offer.list.children];
  offer.at = (index + all.length) % all.length;
  all.forEach((one, number) => one.setAttribute("aria-selected", String(number === offer.at)));
  offer.field.setAttribute("aria-activedescendant", all[offer.at].id);
}

// The person may have typed on, or moved the caret, since the list was made.
function takeName(name) {
  const { field } = offer;
  const end = field.selectionStart;
  const found = MENTION.exec(field.value.slice(0, end));
  if (found) field.setRangeText(`${name} `, end - found[1].length, end, "end");
  closeOffer();
  field.focus();
}

async function offerNames(field) {
  const found = MENTION.exec(field.value.slice(0, field.selectionStart));
  const mine = ++namesAsked;
  if (!found) return closeOffer();
  let names = [];
  try {
    const answer = await fetch(`${field.dataset.mentions}?q=${encodeURIComponent(found[1])}`);
    if (answer.ok) ({ names } = await answer.json());
  } catch (error) {
    /* without names the person types on */
  }
  if (mine !== namesAsked) return;
  closeOffer();
  if (!names.length) return;
  const list = document.createElement("div");
  list.className = "mentions";
  list.role = "listbox";
  list.id = "mentions";
  list.setAttribute("aria-label", "Members");
  for (const [number, name] of names.entries()) {
    const one = document.createElement("div");
    one.className = "palette-hit";
    one.role = "option";
    one.id = `mention-${number}`;
    one.textContent = name;
    one.addEventListener("mousedown", (event) => {
      event.preventDefault(); // the field keeps the focus
      takeName(name);
    });
    list.append(one);
  }
  field.after(list);
  field.setAttribute("aria-controls", "mentions");
  offer = { field, list, at: 0 };
  chooseName(0);
}

document.addEventListener("input", (event) => {
  if (event.target.matches?.("[data-mentions]")) offerNames(event.target);
});
document.addEventListener("focusout", (event) => event.target === offer?.field && closeOffer());
document.addEventListener("keydown", (event) => {
  if (!offer || event.target !== offer.field) return;
  if (event.key === "ArrowDown") chooseName(offer.at + 1);
  else if (event.key === "ArrowUp") chooseName(offer.at - 1);
  else if (event.key === "Enter" || event.key === "Tab") takeName(offer.list.children[offer.at].textContent);
  else if (event.key === "Escape") closeOffer();
  else return;
  event.preventDefault();
  event.stopPropagation();
}, true);
