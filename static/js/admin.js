// The admin has the console's theme: a choice made in one is the choice of the other. Runs before the theme's scripts.
(function () {
  "use strict";
  // The theme's pages have no main landmark.
  document.addEventListener("DOMContentLoaded", () => document.getElementById("main")?.setAttribute("role", "main"));
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
