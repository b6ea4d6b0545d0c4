// Draws each figure of a page from the table below it: the table is what is read without sight or script. Heads of its
// columns say how a curve is drawn (data-draw: "dashed", "pace" for a forecast, "low" and "high" of its band), the figure its shape and scale.
"use strict";

(function () {
  const { HEIGHT, colour, axisStyle, latest, follow, complete } = plots;
  const HUES = ["c-blue", "c-orange", "c-green", "c-purple", "c-red", "c-grey"];
  const TICKS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000];
  const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7, 1e8];
  const charts = new Map();

  for (const field of document.querySelectorAll("[data-sends]")) field.addEventListener("change", () => field.form.submit());

  const plain = (value) => value.toLocaleString("en", { maximumFractionDigits: 3, notation: value >= 1e5 ? "compact" : "standard" });
  const SHOW = {
    share: (value) => `${Math.round(1000 * value) / 10} %`,
    usd: (value) => `$${value >= 1 && value < 1e5 ? value.toLocaleString("en", { maximumFractionDigits: 2 }) : plain(value)}`,
    seconds: (value) => `${plain(value)} s`,
  };
  const shown = (unit) => (value) => (value == null ? "–" : (SHOW[unit] || plain)(value));

  // The numbers of a table: its first column is the x axis.
  function read(figure) {
    const heads = [...figure.querySelectorAll("thead th")].map((cell) => ({ title: cell.textContent.trim(), unit: cell.dataset.unit, draw: cell.dataset.draw || "" }));
    const rows = [...figure.querySelectorAll("tbody tr")].map((row) => [...row.cells]);
    const number = (cell) => (cell.dataset.value === "" ? null : Number(cell.dataset.value));
    const timed = heads[0].unit === "moment";
    const numeric = timed || heads[0].unit === "number";
    return {
      heads,
      timed,
      numeric,
      names: rows.map((cells) => cells[0].textContent.trim()),
      data: heads.map((_, i) => rows.map((cells, n) => (i === 0 && !numeric ? n : number(cells[i])))),
    };
  }

  function gap(values) {
    return Math.min(...values.slice(1).map((value, i) => value - values[i]), Infinity);
  }

  // What the vertical axis is called: the curve's own name, or of several curves their unit.
  const UNITS = { share: "Share", usd: "US dollars", seconds: "Seconds", count: "Number", number: "Value", points: "Points" };

  function curves(heads, { bars, few }) {
    let hues = 0;
    const paced = heads.some((head) => head.draw === "pace");
    return heads.map((head) => {
      const edge = head.draw === "low" || head.draw === "high";
      const pace = head.draw === "pace";
      const dashed = head.draw === "dashed";
      const hue = colour(dashed ? "c-grey" : HUES[edge || pace ? 0 : hues % HUES.length], edge ? 0 : 1);
      if (!edge && !pace && !dashed) hues += 1;
      // A forecast sets no range: it would press flat what was measured.
      const common = { auto: !pace && !(edge && paced), label: head.title, stroke: hue, value: (_, value) => shown(head.unit)(value), spanGaps: true };
      if (!bars) return { ...common, width: edge ? 0 : 2, dash: dashed ? [6, 4] : pace ? [2, 4] : undefined, points: { show: !edge && !dashed && !pace && few, size: 5, fill: hue } };
      // Bars of several columns are beside each other, as far as the first is wide.
      return { ...common, width: 1, fill: hue.replace(/,1\)$/, ",0.75)"), points: { show: false }, paths: uPlot.paths.bars({ size: [0.8 / heads.length, 40], align: heads.length > 1 ? 1 : 0 }) };
    });
  }

  // The range of the vertical axis: shares to 100 %, others from 0; on a logarithmic scale whole powers of ten.
  function range(share, log) {
    if (log) return (_, low, high) => [10 ** Math.floor(Math.log10(Math.max(low, 0.01))), 10 ** Math.ceil(Math.log10(high) + 0.05)];
    if (share) return (_, low, high) => [Math.min(0, low), Math.max(1.02, high)];
    return (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : low < 0 ? 0 : 1];
  }

  function draw(figure) {
    const place = figure.querySelector(".plot");
    const { heads, timed, numeric, names, data } = read(figure);
    const bars = figure.dataset.shape === "bars";
    if ("band" in figure.dataset) [heads[2].draw, heads[3].draw] = ["low", "high"];
    const show = shown(heads[1] ? heads[1].unit : "number");
    const share = heads[1] && heads[1].unit === "share";
    const log = "log" in figure.dataset;
    const xs = data[0];
    const step = numeric && xs.length > 1 ? gap(xs) : timed ? 86400 : 1;
    const drawn = heads.slice(1);
    const shifted = bars && drawn.length > 1;
    const [low, high] = ["low", "high"].map((end) => heads.findIndex((head) => head.draw === end));
    const { grid, ...common } = axisStyle();
    const label = (value) => names[Math.round(value)] ?? "";
    const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
    const hour = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: "UTC" });
    const second = new Intl.DateTimeFormat("en", { timeStyle: "medium", hourCycle: "h23", timeZone: "UTC" });
    // Ticks of less than three days are hours, of some minutes have seconds.
    const span = xs[xs.length - 1] - xs[0];
    const clock = step >= 86400 || span >= 3 * 86400 ? day : span < 600 ? second : hour;
    const tick = (value) => (timed ? clock.format(1000 * value) : numeric ? plain(value) : Number.isInteger(value) ? label(value) : "");
    const nearest = (value) => names[xs.indexOf(value)] ?? tick(value);
    const one = drawn.filter((head) => head.draw === "").length === 1;
    const whole = drawn.every((head) => head.unit === "count");
    const options = {
      width: place.clientWidth,
      height: HEIGHT,
      cursor: { y: false, drag: { x: false, y: false } },
      scales: {
        x: { time: false, range: () => [xs[0] - step * (shifted ? 0.2 : bars ? 0.6 : 0.1), xs[xs.length - 1] + step * (shifted ? 1 : bars ? 0.6 : 0.1)] },
        y: { distr: log ? 3 : 1, range: range(share, log) },
      },
      axes: [
        { ...common, label: `${heads[0].title}${timed ? " (UTC)" : ""}`, grid: { show: false }, values: (_, ticks) => ticks.map(tick), space: 56, size: 30, incrs: timed ? TICKS.filter((seconds) => seconds >= Math.min(step, 86400)) : undefined },
        { ...common, label: figure.dataset.y || (one ? drawn.find((head) => head.draw === "").title : UNITS[heads[1].unit] || "Value"), grid: log ? { ...grid, filter: (_, ticks) => ticks.map((value) => (Math.log10(value) % 1 ? null : value)) } : grid, values: (_, ticks) => ticks.map((value) => (value == null ? "" : show(value))), size: 56, incrs: whole ? WHOLE : undefined },
      ],
      bands: low > 0 && high > 0 ? [{ series: [high, low], fill: colour(HUES[0], 0.18) }] : undefined,
      series: [{ label: heads[0].title, value: (_, value) => (value == null ? "–" : numeric ? nearest(value) : label(value)) }, ...curves(drawn, { bars, few: xs.length < 40 })],
      hooks: { setCursor: [latest] },
    };
    if (shifted) for (const [i, one] of options.series.slice(1).entries()) one.paths = beside(i, drawn.length, step);
    const chart = new uPlot(options, data, place);
    charts.set(place, chart);
    latest(chart);
    complete(place, () => charts.get(place));
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

  const sizes = follow(charts, document.querySelectorAll("figure[data-shape] .plot"), redraw);
  // A part of the page was read again, with its figures.
  document.addEventListener("htmx:afterSettle", () => {
    if ([...document.querySelectorAll("figure[data-shape] .plot")].every((place) => charts.has(place))) return;
    sizes.disconnect();
    redraw();
    for (const place of charts.keys()) sizes.observe(place);
  });
  redraw();
})();
