// Curves of several jobs over each other. Each job's series is fetched once; which curve is shown and over what is in the
// address.
"use strict";

(function () {
  const root = document.getElementById("compared");
  if (!root) return;

  const { AXES, colour, plain, percent, trailing, axisStyle, latest, follow, remember, asTable, complete } = plots;
  const HUES = ["c-blue", "c-orange", "c-green", "c-red", "c-purple", "c-grey"];
  const DASHES = [[], [9, 4], [2, 3], [12, 3, 2, 3], [5, 2], [1, 5]]; // colour never speaks alone
  const SHARES = new Set(["selection", "success_rate", "frac_reward_zero_std"]);
  const HEIGHT = 320;
  const place = root.querySelector(".plot");
  const jobs = [...root.querySelectorAll("[data-series]")].map((one) => ({ title: one.dataset.title, address: one.dataset.series }));
  const asked = new URLSearchParams(location.search);
  const metric = root.querySelector("select[name=metric]");
  let axis = AXES[asked.get("axis")] ? asked.get("axis") : "n";
  const charts = new Map();

  function curve(found) {
    if (metric.value === "selection") return [found.selection.map((row) => row[axis]), found.selection.map((row) => row.success_rate)];
    const values = found.iterations.map((row) => row[metric.value] ?? null);
    return [found.iterations.map((row) => row[axis]), trailing(values)];
  }

  function draw() {
    for (const chart of charts.values()) chart.destroy();
    charts.clear();
    const curves = jobs.map((job) => curve(job.found || { iterations: [], selection: [] }));
    const none = curves.every(([, values]) => values.every((value) => value == null));
    root.querySelector("[data-no-points]").hidden = !none;
    place.hidden = none;
    root.querySelector("details").hidden = none;
    if (none) return;
    const share = SHARES.has(metric.value);
    const show = share ? percent : plain;
    const common = axisStyle();
    const options = {
      width: place.clientWidth,
      height: HEIGHT,
      cursor: { y: false, drag: { x: true, y: false } },
      scales: { x: { time: false }, y: { range: (_, low, high) => (share ? [0, 1.02] : [Math.min(0, low), high > 0 ? high * 1.08 : 1]) } },
      axes: [
        { ...common, label: AXES[axis].label, values: (_, ticks) => ticks.map(AXES[axis].show), space: 70, size: 30 },
        { ...common, label: metric.selectedOptions[0].textContent.trim(), values: (_, ticks) => ticks.map(share ? (value) => `${Math.round(100 * value)} %` : plain), size: 52 },
      ],
      series: [
        { label: AXES[axis].label, value: (_, value) => (value == null ? "–" : AXES[axis].show(value)) },
        ...jobs.map((job, i) => ({ label: job.title, stroke: colour(HUES[i]), dash: DASHES[i], width: 2, spanGaps: true, points: { show: curves[i][0].length < 40, size: 5, fill: colour(HUES[i]) }, value: (_, value) => show(value) })),
      ],
      hooks: { setCursor: [latest] },
    };
    charts.set(place, new uPlot(options, uPlot.join(curves), place));
    latest(charts.get(place));
    asTable(root.querySelector("details"), () => charts.get(place));
    complete(place, () => charts.get(place), () => `${metric.selectedOptions[0].textContent.trim()} by ${AXES[axis].label.toLowerCase()}`);
  }

  root.addEventListener("change", (event) => {
    if (event.target.name === "axis") axis = event.target.value;
    remember(event.target.name, event.target.value);
    for (const link of document.querySelectorAll("a[data-keeps]")) {
      const address = new URL(link.href);
      address.searchParams.set(event.target.name, event.target.value);
      link.href = address;
    }
    draw();
  });

  if ([...metric.options].some((one) => one.value === asked.get("metric"))) metric.value = asked.get("metric");
  root.querySelector(`input[name=axis][value=${axis}]`).checked = true;
  follow(charts, [place], draw, () => HEIGHT);
  Promise.all(
    jobs.map(async (job) => {
      const answer = await fetch(job.address, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(String(answer.status));
      job.found = await answer.json();
    }),
  )
    .then(draw)
    .catch(() => {
      const failed = root.querySelector("[data-no-points]");
      failed.textContent = "The curves could not be loaded. Load the page again.";
      failed.hidden = false;
    });
})();
