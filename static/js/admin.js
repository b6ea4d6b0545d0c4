// The admin has the console's theme: a choice made in one is the choice of the other. Runs before the theme's scripts.
(function () {
  "use strict";
  // The theme's pages have no main landmark.
  document.addEventListener("DOMContentLoaded", () => document.getElementById("main")?.setAttribute("role", "main"));
  // Its searchable choices have no name: they take that of their field.
  addEventListener("load", () => {
    for (const place of document.querySelectorAll(".select2-selection, .select2-selection__rendered")) {
      const field = place.closest(".select2").previousElementSibling;
      const label = field && document.querySelector(`label[for="${field.id}"]`);
      if (label) place.setAttribute("aria-label", label.textContent.trim());
    }
  });
  const KEPT = { light: '"light"', dark: '"dark"' };
  const root = document.documentElement;
  try {
    localStorage.setItem("adminTheme", KEPT[localStorage.getItem("theme")] || '"auto"');
  } catch (error) {
    return; // storage may be switched off
  }
  new MutationObserver(() =>
    setTimeout(() => {
      const chosen = Object.keys(KEPT).find((name) => KEPT[name] === localStorage.getItem("adminTheme"));
      if (chosen) localStorage.setItem("theme", chosen);
      else localStorage.removeItem("theme");
      document.dispatchEvent(new CustomEvent("theme:changed"));
    }),
  ).observe(root, { attributeFilter: ["class"] });
})();
