// Descriptions of elements that stick out or are too small to hit (tests/support/geometry.py).
// Sticking out: the page is wider than its window, or an element ends outside of its card, and nothing between scrolls.
// Small: below 24 x 24 pixels, and nearer to another target than a circle of that size allows (WCAG 2.5.8).
// Links within a text are excepted there. A box counts with the label around it.
() => {
  const found = new Set();
  const shown = (e) => {
    if (!e.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true })) return false;
    if (e.closest(".hidden")) return false;
    const box = e.getBoundingClientRect();
    return box.width > 1 && box.height > 1;
  };
  const name = (e) => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + (e.classList.length ? "." + [...e.classList].join(".") : "");
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth + 1) found.add(`the page is ${root.scrollWidth - root.clientWidth} px too wide`);
  const holds = (e) => getComputedStyle(e).overflowX !== "visible";
  for (const card of document.querySelectorAll(".card, main, dialog[open]")) {
    if (!shown(card) || holds(card)) continue;
    const place = card.getBoundingClientRect();
    for (const e of card.querySelectorAll("*")) {
      if (!shown(e) || getComputedStyle(e).position === "fixed") continue;
      let between = e.parentElement;
      while (between !== card && !holds(between) && getComputedStyle(between).position !== "fixed") between = between.parentElement;
      if (between !== card) continue;
      const box = e.getBoundingClientRect();
      const out = Math.round(Math.max(box.right - place.right, place.left - box.left));
      if (out > 1) found.add(`${name(e)} ends ${out} px outside of ${name(card)}`);
    }
  }
  const targets = [];
  for (const e of document.querySelectorAll("a[href], button, input, select, textarea, summary")) {
    if (!shown(e)) continue;
    const label = (e.type === "checkbox" || e.type === "radio") && e.closest("label");
    const box = (label || e).getBoundingClientRect();
    const inline = e.tagName === "A" && getComputedStyle(e).display === "inline";
    const small = !inline && (box.width < 23.5 || box.height < 23.5);
    targets.push({ e, box, small, x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2 });
  }
  for (const one of targets.filter((target) => target.small)) {
    const near = targets.find((other) => {
      if (other === one || other.e.contains(one.e) || one.e.contains(other.e)) return false;
      if (other.small) return Math.hypot(other.x - one.x, other.y - one.y) < 24;
      const across = Math.max(other.box.left - one.x, 0, one.x - other.box.right);
      const down = Math.max(other.box.top - one.y, 0, one.y - other.box.bottom);
      return Math.hypot(across, down) < 12;
    });
    if (near) found.add(`${name(one.e)} of ${Math.round(one.box.width)} x ${Math.round(one.box.height)} px is too near to ${name(near.e)}`);
  }
  return [...found];
}
