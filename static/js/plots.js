// What every chart of the console shares: colours of the theme, how numbers are written, and sizes that follow the page.
"use strict";

window.plots = (function () {
  const HEIGHT = 210;

  // A custom property reads as the text it was written as; only a used colour is resolved for light or dark.
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  function colour(name, alpha = 1) {
    if (!probe.isConnected) document.body.append(probe); // the way back puts another body in its place
    probe.style.color = `var(--${name})`;
    const parts = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3);
    return `rgba(${parts.join(",")},${alpha})`;
  }

  function time(seconds) {
    if (seconds == null) return "–";
    if (seconds < 90) return `${Math.round(seconds)} s`;
    if (seconds < 5400) return `${Math.round(seconds / 6) / 10} min`;
    return `${Math.round(seconds / 360) / 10} h`;
  }
  const plain = (value) => (value == null ? "–" : value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 0.01 ? 5 : 3 }));
  const percent = (value) => (value == null ? "–" : `${(100 * value).toFixed(1)} %`);
  const dollars = (value) => (value == null ? "–" : `$${value.toFixed(value && value < 0.1 ? 4 : 2)}`);

  // Quantities of the x axis of jobs' curves.
  const AXES = {
    n: { label: "Iteration", show: plain },
    trajectories: { label: "Trajectories", show: plain },
    cost_usd: { label: "Spent", show: dollars },
    seconds: { label: "Time", show: time },
  };

  // Means of the latest values: single iterations of a few rollouts jump too much.
  function trailing(values, of = 10) {
    const kept = [];
    return values.map((value) => {
      if (value != null) kept.push(value);
      if (kept.length > of) kept.shift();
      return kept.length ? kept.reduce((a, b) => a + b, 0) / kept.length : null;
    });
  }

  // The look of an axis.
  function axisStyle() {
    const grid = { stroke: colour("line"), width: 1 };
    return { stroke: colour("text-3"), grid, ticks: { ...grid, size: 4 }, font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif", labelSize: 16, labelGap: 0 };
  }

  // Without a cursor the legend shows the latest values.
  function latest(chart) {
    if (chart.cursor.idx == null && chart.data[0].length) chart.setLegend({ idx: chart.data[0].length - 1 }, false);
  }

  // Charts by their place follow its width, and are drawn again in another theme. Returns what watches the widths.
  function follow(charts, places, redraw, height = () => HEIGHT) {
    const watch = new ResizeObserver(() => {
      for (const [place, chart] of charts) if (place.clientWidth !== chart.width) chart.setSize({ width: place.clientWidth, height: height() });
    });
    for (const place of places) watch.observe(place);
    document.addEventListener("theme:changed", redraw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    return watch;
  }

  // The choice is in the address, so that it can be shared.
  function remember(name, value) {
    const address = new URL(location);
    address.searchParams.set(name, value);
    history.replaceState(history.state, "", address);
  }

  // The same numbers for those who read them: at most twelve moments, evenly over the horizontal axis, as a table that is
  // made when it is opened.
  const ROWS = 12;
  function asTable(details, chart) {
    details.hidden = false;
    details.ontoggle = () => details.open && fill(details.querySelector(".scroll"), chart());
    if (details.open) details.ontoggle();
  }

  function fill(place, chart) {
    const [xs, ...columns] = chart.data;
    const shown = chart.series.map((one) => (value) => one.value(chart, value ?? null));
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const [i, one] of chart.series.entries()) {
      const cell = document.createElement("th");
      cell.scope = "col";
      if (i) cell.className = "number";
      cell.textContent = one.label;
      head.append(cell);
    }
    const body = table.createTBody();
    const step = Math.max(1, (xs.length - 1) / (ROWS - 1));
    const rows = xs.length ? [...new Set(Array.from({ length: ROWS }, (_, i) => Math.min(xs.length - 1, Math.round(i * step))))] : [];
    for (const at of rows) {
      const row = body.insertRow();
      row.insertCell().textContent = shown[0](xs[at]);
      for (const [i, column] of columns.entries()) {
        const cell = row.insertCell();
        cell.className = "number";
        // A curve that was not measured here has the value that it had last.
        const known = column.slice(0, at + 1).findLast((value) => value != null);
        cell.textContent = shown[i + 1](known);
      }
    }
    place.replaceChildren(table);
  }

  return { asTable, HEIGHT, AXES, colour, time, plain, percent, dollars, trailing, axisStyle, latest, follow, remember };
})();
