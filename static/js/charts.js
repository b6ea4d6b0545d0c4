// The curves of a job: fetched once, then only what is new. Uncertainty is drawn as a band, the untrained baseline is
// always there as a dashed line. Never the surrogate loss: it says nothing about progress.
"use strict";

(function () {
  const { HEIGHT, AXES, colour, plain, percent, dollars, trailing, axisStyle, latest, follow, remember, asTable, complete } = plots;
  const FETCH_EVERY = 700;
  const points = { iterations: [], selection: [] };
  const charts = new Map();
  let root = null; // the place of the charts, while their tab is open
  let budget = 0;
  let axis = new URLSearchParams(location.search).get("axis") || "n";
  let fetching = false;
  let wanted = false;

  // -- data ----------------------------------------------------------------------------------------------------------

  const xs = (rows) => rows.map((row) => row[axis]);
  const column = (name) => points.iterations.map((row) => row[name] ?? null);
  const line = (label, name, show, extra = {}) => ({
    label,
    stroke: colour(name),
    width: 2,
    points: { show: false },
    spanGaps: true,
    value: (_, value) => show(value),
    ...extra,
  });
  const faint = (label, name, show) =>
    line(label, name, show, { width: 0, stroke: colour(name, 0.55), points: { show: true, size: 3, fill: colour(name, 0.55), width: 0 } });
  const dashed = (label, show) => line(label, "c-grey", show, { width: 1.5, dash: [6, 4] });

  function success() {
    const sampled = column("success_rate");
    const base = points.selection.length ? points.selection[0].baseline : null;
    const seen = points.selection;
    const data = uPlot.join([
      [xs(points.iterations), sampled, trailing(sampled), sampled.map(() => base)],
      [xs(seen), seen.map((row) => row.success_rate), seen.map((row) => row.low), seen.map((row) => row.high)],
    ]);
    const edge = { width: 0, points: { show: false } };
    return {
      data,
      series: [
        faint("Sampled", "c-grey", percent),
        line("Mean of 10", "c-grey", percent, { width: 1.5 }),
        dashed("Untrained", percent),
        line("Selection", "c-blue", percent, { points: { show: seen.length < 60, size: 5, fill: colour("c-blue") } }),
        line("from", "c-blue", percent, edge),
        line("to", "c-blue", percent, edge),
      ],
      bands: [{ series: [6, 5], fill: colour("c-blue", 0.18) }],
      range: () => [0, 1.02],
      show: (value) => `${Math.round(100 * value)} %`,
      label: "Success rate",
    };
  }

  function simple(name, label, hue, show, extra = {}) {
    const values = column(name);
    return {
      data: [xs(points.iterations), values, trailing(values)],
      series: [faint(label, hue, show), line("Mean of 10", hue, show)],
      show,
      label,
      ...extra,
    };
  }

  function cost() {
    const spent = column("cost_usd");
    return {
      data: [xs(points.iterations), spent, spent.map(() => budget)],
      series: [line("Spent", "c-orange", dollars), dashed("Budget", dollars)],
      range: (_, low, high) => [0, Math.max(high, budget) * 1.05],
      show: (value) => `$${plain(value)}`,
      label: "US dollars",
    };
  }

  function entropy() {
    return {
      data: [xs(points.iterations), trailing(column("entropy")), trailing(column("approx_kl"))],
      series: [line("Entropy", "c-purple", plain), line("KL", "c-orange", plain, { scale: "kl" })],
      range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1],
      show: plain,
      label: "Entropy (nats)",
      second: { scale: "kl", side: 1, show: plain, label: "KL (nats)" },
    };
  }

  function context() {
    return {
      data: [xs(points.iterations), column("lessons"), column("told_tokens")],
      series: [line("Lessons", "c-blue", plain), line("Tokens", "c-orange", plain, { scale: "tokens" })],
      range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1],
      show: plain,
      label: "Lessons",
      second: { scale: "tokens", side: 1, show: plain, label: "Tokens" },
    };
  }

  const zeroToOne = { range: () => [0, 1.02], show: (value) => `${Math.round(100 * value)} %` };
  const BUILD = {
    success,
    reward: () => simple("reward_mean", "Reward", "c-green", plain),
    cost,
    entropy,
    context,
    signal: () => ({ ...simple("frac_reward_zero_std", "Without signal", "c-red", percent), ...zeroToOne }),
    steps: () => simple("steps_mean", "Steps", "c-blue", plain),
  };

  // -- drawing -------------------------------------------------------------------------------------------------------

  function options(built, width) {
    const common = axisStyle();
    const axes = [
      { ...common, label: AXES[axis].label, values: (_, ticks) => ticks.map(AXES[axis].show), space: 70, size: 30 },
      { ...common, label: built.label, values: (_, ticks) => ticks.map(built.show), size: 52 },
    ];
    const scales = { x: { time: false }, y: built.range ? { range: built.range } : {} };
    if (built.second) {
      axes.push({ ...common, ...built.second, grid: { show: false }, values: (_, t) => t.map(built.second.show), size: 56 });
      scales[built.second.scale] = { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] };
    }
    return {
      width,
      height: HEIGHT,
      cursor: { sync: { key: "job" }, y: false, drag: { x: true, y: false } },
      legend: { live: true },
      scales,
      axes,
      bands: built.bands,
      hooks: { setCursor: [latest] },
      series: [{ label: AXES[axis].label, value: (_, value) => (value == null ? "–" : AXES[axis].show(value)) }, ...built.series],
    };
  }

  function draw() {
    const empty = points.iterations.length === 0;
    root.querySelector("[data-no-points]").hidden = !empty;
    for (const part of root.querySelectorAll("[data-points]")) part.hidden = empty;
    const free = !empty && points.iterations[points.iterations.length - 1].cost_usd === 0;
    const byCost = root.querySelector("input[value=cost_usd]");
    if (byCost) byCost.disabled = free;
    if (free && axis === "cost_usd") axis = "n";
    for (const figure of root.querySelectorAll("[data-chart]")) {
      const place = figure.querySelector(".plot");
      const built = BUILD[figure.dataset.chart]();
      const known = charts.get(place);
      if (known && !empty) {
        known.setData(built.data);
        latest(known);
      } else if (!empty) {
        charts.set(place, new uPlot(options(built, place.clientWidth), built.data, place));
        latest(charts.get(place));
      }
      if (empty) continue;
      asTable(figure.querySelector("details"), () => charts.get(place));
      complete(place, () => charts.get(place));
    }
  }

  function redraw() {
    for (const chart of charts.values()) chart.destroy();
    charts.clear();
    if (root && points.iterations.length) draw(); // before the first answer the page shows the job's state
  }

  const sizes = follow(charts, [], redraw);

  function chooseAxis(event) {
    if (event.target.name !== "axis") return;
    axis = event.target.value;
    remember("axis", axis);
    redraw();
  }

  // Called when the page opens, and after each change of it: the charts come and go with their tab.
  function begin() {
    const found = document.getElementById("charts");
    if (found === root) return;
    sizes.disconnect();
    root = found;
    if (root) budget = Number(root.dataset.budget);
    redraw();
    if (!root) return;
    const chosen = root.querySelector(`input[name=axis][value=${axis}]`);
    if (chosen) chosen.checked = true;
    root.addEventListener("change", chooseAxis);
    sizes.observe(root);
    fetchNew();
  }

  // -- fetching ------------------------------------------------------------------------------------------------------

  async function fetchNew() {
    if (!root) return;
    if (fetching) {
      wanted = true;
      return;
    }
    fetching = true;
    let found = null;
    try {
      const last = points.iterations.length ? points.iterations[points.iterations.length - 1].n : 0;
      const answer = await fetch(`${root.dataset.series}?after=${last}`, { headers: { Accept: "application/json" } });
      if (answer.ok) found = await answer.json();
    } catch (error) {
      /* the network is away: the next event or the next connection asks again */
    } finally {
      setTimeout(() => {
        fetching = false;
        if (wanted) {
          wanted = false;
          fetchNew();
        }
      }, FETCH_EVERY);
    }
    if (!found) return;
    points.iterations.push(...found.iterations);
    points.selection.push(...found.selection);
    if (root) draw();
  }

  document.addEventListener("job:event", fetchNew);
  document.addEventListener("htmx:afterSettle", begin);
  document.addEventListener("htmx:historyRestore", begin);
  if (!AXES[axis]) axis = "n";
  begin();
})();
