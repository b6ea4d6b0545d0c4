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

  // The last place that was measured: behind it may be a forecast.
  function newest(chart) {
    const at = chart.data.length > 1 ? chart.data[1].findLastIndex((value) => value != null) : -1;
    return at < 0 ? chart.data[0].length - 1 : at;
  }

  // Without a cursor the legend shows the latest values.
  function latest(chart) {
    if (chart.cursor.idx == null && chart.data[0].length) chart.setLegend({ idx: newest(chart) }, false);
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

  // A chart is also read by keyboard, as a slider over its moments, and saved as an image. `chart`: the present one of
  // the place, which is drawn again in another theme.
  function complete(place, chart, title = () => titleOf(place)) {
    const last = () => chart().data[0].length - 1;
    const visible = (one) => one.label && (one.width > 0 || one.points.show === true || (one.points.show && one.points.size)) && !/,0\)$/.test(one.stroke(chart(), 1));
    const said = (at) => chart().series.map((one, i) => [one, chart().data[i][at]]).filter(([one, value], i) => i === 0 || value != null).map(([one, value]) => `${one.label}: ${one.value(chart(), value)}`).join("; ");
    let at = newest(chart());
    function move(to) {
      at = Math.max(0, Math.min(last(), to));
      place.setAttribute("aria-valuenow", at);
      place.setAttribute("aria-valuemax", last());
      place.setAttribute("aria-valuetext", said(at));
    }
    move(at);
    place.setAttribute("aria-label", `${title()}: values by the arrow keys`);
    if (place.dataset.complete) return;
    place.dataset.complete = "1";
    place.removeAttribute("aria-hidden");
    place.tabIndex = 0;
    place.setAttribute("role", "slider");
    place.setAttribute("aria-valuemin", 0);
    place.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageDown: at - 10, PageUp: at + 10, Home: 0, End: last() };
      if (!(event.key in steps)) return;
      event.preventDefault();
      move(steps[event.key]);
      chart().setCursor({ left: chart().valToPos(chart().data[0][at], "x"), top: 1 });
    });
    place.addEventListener("blur", () => chart().setCursor({ left: -10, top: -10 }));
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button plain small chart-image";
    button.textContent = "Save image";
    button.setAttribute("aria-label", `Save image: ${title()}`);
    button.addEventListener("click", () => save(chart(), title(), chart().series.slice(1).filter(visible)));
    place.after(button);
  }

  function titleOf(place) {
    const figure = place.closest("figure");
    const head = figure.querySelector("h2, h3") || figure.querySelector("figcaption");
    return head ? head.textContent.trim().replace(/\s+/g, " ") : "Chart";
  }

  // The picture with its title and legend, on the colour of the page, as a PNG file.
  function save(chart, title, curves) {
    const from = chart.ctx.canvas;
    const unit = from.width / chart.width;
    const [pad, row] = [12 * unit, 20 * unit];
    const canvas = document.createElement("canvas");
    const pen = canvas.getContext("2d");
    const places = [];
    let [x, y] = [pad, 0];
    pen.font = `${12 * unit}px system-ui, sans-serif`;
    for (const one of curves) {
      const wide = pen.measureText(one.label).width + 34 * unit;
      if (x + wide > from.width && x > pad) [x, y] = [pad, y + row];
      places.push([one, x, y]);
      x += wide;
    }
    canvas.width = from.width + 2 * pad;
    canvas.height = from.height + y + 2 * row + 2 * pad;
    pen.fillStyle = colour("surface-1");
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(from, pad, pad + row);
    pen.fillStyle = colour("text-1");
    pen.textBaseline = "middle";
    pen.font = `600 ${13 * unit}px system-ui, sans-serif`;
    pen.fillText(title, pad, pad + row / 2, canvas.width - 2 * pad);
    pen.font = `${12 * unit}px system-ui, sans-serif`;
    for (const [one, left, down] of places) {
      const middle = pad + row + from.height + down + row / 2;
      pen.strokeStyle = one.stroke(chart, 1);
      pen.lineWidth = 2 * unit;
      pen.setLineDash((one.dash || []).map((part) => (part * unit) / 2));
      pen.beginPath();
      pen.moveTo(left, middle);
      pen.lineTo(left + 16 * unit, middle);
      pen.stroke();
      pen.fillText(one.label, left + 21 * unit, middle);
    }
    canvas.toBlob((file) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(file);
      link.download = `${title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "chart"}.png`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
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

  return { asTable, complete, HEIGHT, AXES, colour, time, plain, percent, dollars, trailing, axisStyle, latest, follow, remember };
})();
