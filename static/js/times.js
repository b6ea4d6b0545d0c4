// Every <time> in the person's own time zone: the one of their settings, else the browser's. The server writes UTC, which
// stays where scripts don't run. One form everywhere: 24 Nov 2026, 23:29:07.
"use strict";

(function () {
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const PARTS = { day: "numeric", month: "numeric", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const browser = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const format = written(document.documentElement.dataset.zone) || written(browser);

  function written(zone) {
    try {
      return new Intl.DateTimeFormat("en-GB", { ...PARTS, hourCycle: "h23", timeZoneName: "short", timeZone: zone || undefined });
    } catch (error) {
      return null; // a zone that this browser doesn't know
    }
  }

  function show(time) {
    const moment = new Date(time.dateTime);
    if (isNaN(moment)) return;
    const part = Object.fromEntries(format.formatToParts(moment).map((one) => [one.type, one.value]));
    const day = `${part.day} ${MONTHS[part.month - 1]} ${part.year}`;
    const exact = `${day}, ${part.hour}:${part.minute}:${part.second} ${part.timeZoneName}`;
    time.title = exact;
    if (time.dataset.shown === "day") time.textContent = day;
    if (time.dataset.shown === "moment") time.textContent = exact;
  }

  function showAll() {
    for (const time of document.querySelectorAll("time[title]")) show(time);
    // What a person has not chosen yet is the browser's.
    for (const field of document.querySelectorAll("input[data-browser-zone]")) if (!field.value) field.value = browser || "";
  }

  showAll();
  document.addEventListener("htmx:afterSettle", showAll);
})();
