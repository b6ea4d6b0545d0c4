// Draws each chart of a dashboard from the table below it: the table is what is read without sight or script.
"use strict";

(function () {
  const { HEIGHT, colour, axisStyle, latest, follow } = plots;
  const HUES = ["c-blue", "c-orange", "c-green", "c-purple", "c-red", "c-grey"];
  const TICKS = [3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000];
  const charts = new Map();

  for (const field of document.querySelectorAll("[data-sends]")) field.addEventListener("change", () => field.form.submit());

  const plain = (value) => value.toLocaleString("en", { maximumFractionDigits: 3, notation: value >= 1e5 ? "compact" : "standard" });
  const SHOW = {
    share: (value) => `${Math.round(1000 * value) / 10} %`,
    usd: (value) => `$${plain(value)}`,
    seconds: (value) => `${plain(value)} s`,
  };
  const shown = (unit) => (value) => (value == null ? "–" : (SHOW[unit] || plain)(value));

  // The numbers of a table: its first column is the x axis.
  function read(figure) {
    const heads = [...figure.querySelectorAll("thead th")].map((cell) => ({ title: cell.textContent.trim(), unit: cell.dataset.unit }));
    const rows = [...figure.querySelectorAll("tbody tr")].map((row) => [...row.cells]);
    const number = (cell) => (cell.dataset.value === "" ? null : Number(cell.dataset.value));
    const timed = heads[0].unit === "moment";
    return {
      heads,
      timed,
      names: rows.map((cells) => cells[0].textContent.trim()),
      data: heads.map((_, i) => rows.map((cells, n) => (i === 0 && !timed ? n : number(cells[i])))),
    };
  }

  function gap(values) {
    return Math.min(...values.slice(1).map((value, i) => value - values[i]), Infinity);
  }

  function draw(figure) {
    const place = figure.querySelector(".plot");
    const { heads, timed, names, data } = read(figure);
    const bars = figure.dataset.shape === "bars";
    const band = "band" in figure.dataset;
    const show = shown(heads[1] ? heads[1].unit : "number");
    const share = heads[1] && heads[1].unit === "share";
    const few = data[0].length < 40;
    const step = timed && data[0].length > 1 ? gap(data[0]) : timed ? 86400 : 1;
    const series = heads.slice(1).map((head, i) => {
      const edge = band && i > 0;
      const hue = colour(HUES[i % HUES.length]);
      const common = { label: head.title, stroke: edge ? "transparent" : hue, value: (_, value) => shown(head.unit)(value), spanGaps: true };
      if (!bars) return { ...common, width: edge ? 0 : 2, points: { show: !edge && few, size: 5, fill: hue } };
      // Bars of several columns are beside each other, as far as the first is wide.
      return { ...common, width: 1, fill: colour(HUES[i % HUES.length], 0.75), points: { show: false }, paths: uPlot.paths.bars({ size: [0.8 / (heads.length - 1), 40], align: heads.length > 2 ? 1 : 0 }) };
    });
    const shifted = bars && heads.length > 2;
    const { grid, ...common } = axisStyle();
    const label = (value) => names[Math.round(value)] ?? "";
    const day = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", timeZone: "UTC" });
    const hour = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: "UTC" });
    const moment = (value) => (step < 86400 ? hour : day).format(1000 * value);
    const when = timed ? moment : label;
    const options = {
      width: place.clientWidth,
      height: HEIGHT,
      cursor: { y: false, drag: { x: false, y: false } },
      scales: {
        x: { time: false, range: () => [data[0][0] - step * (shifted ? 0.2 : 0.6), data[0][data[0].length - 1] + step * (shifted ? 1 : 0.6)] },
        y: { range: (_, low, high) => (share ? [Math.min(0, low), Math.max(1.02, high)] : [Math.min(0, low), high > 0 ? high * 1.08 : low < 0 ? 0 : 1]) },
      },
      axes: [
        { ...common, grid: { show: false }, values: (_, ticks) => ticks.map((tick) => (timed || Number.isInteger(tick) ? when(tick) : "")), space: 56, size: 30, incrs: timed ? TICKS.filter((seconds) => seconds >= Math.min(step, 86400)) : undefined },
        { ...common, grid, values: (_, ticks) => ticks.map(show), size: 56 },
      ],
      bands: band ? [{ series: [3, 2], fill: colour(HUES[0], 0.18) }] : undefined,
      series: [{ label: heads[0].title, value: (_, value) => (value == null ? "–" : when(value)) }, ...series],
      hooks: { setCursor: [latest] },
    };
    if (shifted) for (const [i, one] of options.series.slice(1).entries()) one.paths = beside(i, heads.length - 1, step);
    const chart = new uPlot(options, data, place);
    charts.set(place, chart);
    latest(chart);
  }

  // The bars of column i of n, from the point to the right.
  function beside(i, n, step) {
    return (u, series) => {
      const path = new Path2D();
      const room = (u.valToPos(step, "x", true) - u.valToPos(0, "x", true)) * (0.8 / n);
      const width = Math.min(room, 40 * devicePixelRatio); // one day alone is no wall
      const zero = u.valToPos(0, "y", true);
      u.data[series].forEach((value, at) => {
        if (!value) return;
        const top = u.valToPos(value, "y", true);
        path.rect(u.valToPos(u.data[0][at], "x", true) + i * width, Math.min(top, zero), Math.max(1, width - 1), Math.abs(zero - top));
      });
      return { fill: path, stroke: path };
    };
  }

  function redraw() {
    for (const chart of charts.values()) chart.destroy();
    charts.clear();
    for (const figure of document.querySelectorAll("figure[data-shape]")) if (figure.querySelector(".plot")) draw(figure);
  }

  follow(charts, document.querySelectorAll("figure[data-shape] .plot"), redraw);
  redraw();
})();
