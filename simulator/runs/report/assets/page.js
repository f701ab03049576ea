// The page from top to bottom.

const LOGO = `<svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" fill="#3158d4"/>
<g fill="#fff"><rect x="6" y="8" width="9" height="4" rx="2"/><rect x="17" y="8" width="5" height="4" rx="2" opacity=".55"/>
<rect x="6" y="14" width="5" height="4" rx="2" opacity=".55"/><rect x="13" y="14" width="13" height="4" rx="2"/>
<rect x="6" y="20" width="12" height="4" rx="2"/><rect x="20" y="20" width="4" height="4" rx="2" opacity=".55"/></g></svg>`;
const main = document.getElementById("page");
main.replaceChildren();

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  redrawAll();
}

setTheme(window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));

function top() {
  const mark = node("h1", {});
  mark.innerHTML = LOGO;
  mark.append("Headway");
  const dropped = DATA.dropped ? ` (${DATA.dropped.toLocaleString("en")} more dropped)` : "";
  const jobs = `${DATA.trace.ids.length.toLocaleString("en")} jobs${dropped}`;
  const count = RUNS.length === 1 ? "one policy" : `${RUNS.length} policies`;
  main.append(node("header", {},
    node("div", { class: "words" }, mark,
      node("p", { class: "lead" }, node("b", {}, count), " on ", node("b", {}, DATA.trace.name), `, ${jobs}, on `,
        node("b", {}, DATA.cluster), `, ${DATA.gpus.toLocaleString("en")} GPUs`)),
    node("button", { onclick: () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark") }, "light / dark")));
}

function legend() {
  const chips = RUNS.map((run) => {
    const chip = node("button", {
      class: "chip", "aria-pressed": "true",
      onclick() {
        run.shown = !run.shown;
        chip.setAttribute("aria-pressed", String(run.shown));
        redrawAll();
      },
    }, node("i", { style: { borderColor: run.color, borderTopStyle: run.dash.length ? "dashed" : "solid" } }), run.name);
    return chip;
  });
  main.append(node("div", { class: "legend", role: "group", "aria-label": "Policies shown" }, ...chips));
}

function tiles() {
  const wanted = [["avg_jct_s", "Best average JCT"], ["p99_jct_s", "Best 99th percentile"], ["makespan_s", "Shortest makespan"],
    ["fragmentation", "Least fragmentation"], ["worst_fairness", "Fairest to the worst off"]];
  const cards = wanted.map(([key, title]) => {
    const row = DATA.table.find((each) => each.key === key);
    if (!row || !row.values.some((value) => value !== null)) return null;
    const known = row.values.map((value, at) => [value, at]).filter(([value]) => value !== null);
    known.sort((one, other) => (one[0] - other[0]) * (row.better > 0 ? -1 : 1));
    const [value, at] = known[0];
    const worst = known[known.length - 1][0];
    const all = worst === value;
    const than = all || !value ? "" : `${digits(worst / value, 2)} × less than the worst`;
    return node("div", { class: "card tile" }, node("h2", {}, title), node("div", { class: "value" }, row.texts[at]),
      node("div", { class: "who" }, all ? null : node("span", { class: "dot", style: { background: RUNS[at].color } }),
        node("span", { title: RUNS[at].name }, all ? "the same for all" : RUNS[at].name)),
      than ? node("div", { class: "than" }, than) : null);
  });
  main.append(node("div", { class: "tiles" }, ...cards));
}

function section(title, note) {
  const card = node("section", { class: "card" }, node("h2", {}, title), note ? node("p", { class: "note" }, note) : null);
  main.append(card);
  return card;
}

function chartIn(holder, title, wanted) {
  const chart = node("div", { class: "chart" });
  holder.append(node("div", {}, node("h3", {}, title), chart));
  lineChart(chart, wanted);
}

function distributions() {
  const card = section("Job completion times", "Share of jobs that took at most this time. JCT is the time from submission to finish, waiting included.");
  const pair = node("div", { class: "pair" });
  card.append(pair);
  const shares = (values) => values.map((value, at) => (values.length > 1 ? at / (values.length - 1) : 1));
  const common = { yMax: 1, height: 320, yText: (value) => `${Math.round(100 * value)} %`, yTip: shareText };
  chartIn(pair, "JCT", {
    ...common, of: (run) => [run.jct, shares(run.jct)], x: "logtime", xLabel: "JCT", xTip: (x) => `finished within ${timeText(x)}`,
  });
  chartIn(pair, "Slowdown", {
    ...common, of: (run) => [run.slowdown, shares(run.slowdown)], x: "log", xLabel: "JCT / run time alone",
    xTip: (x) => `took at most ${digits(x)} × as long as alone`,
  });
}

function overTime() {
  const card = section("The cluster over time", "Means over equal parts of each run, from its first submission to its last finish.");
  const together = [];
  const begin = Math.min(...RUNS.map((run) => run.begin));
  const of = (key) => (run) => {
    const step = (run.end - run.begin) / run[key].length;
    const xs = [];
    const ys = [];
    run[key].forEach((value, at) => {
      xs.push(run.begin - begin + at * step, run.begin - begin + (at + 1) * step);
      ys.push(value, value);
    });
    return [xs, ys];
  };
  const common = { x: "time", together, height: 190, xLabel: "since the first submit", xTip: (x) => `after ${timeText(x)}` };
  const percent = (value) => `${Math.round(100 * value)} %`;
  chartIn(card, "GPUs busy", { ...common, of: of("utilization"), yMax: 1, yText: percent, yTip: shareText, quietX: true });
  chartIn(card, "Fragmentation (SCHED2, equation 1; 0 = GPUs of a node come free together)", {
    ...common, of: of("fragmentation"), yText: (value) => digits(value), yTip: (value) => value.toFixed(3), quietX: true,
  });
  chartIn(card, "Jobs waiting", {
    ...common, height: 220, of: of("queue"), yText: (value) => digits(value), yTip: (value) => digits(value),
  });
}

function contention() {
  const card = section("Contention by pair of models",
    "Slowdown of a step of the row's model while it shares a node or a link with the column's model.");
  if (RUNS.some((run) => run.heat)) heatMap(card);
  else card.append(node("p", { class: "note" }, RUNS[0].no_heat || "No job ran."));
}

function chartOfRuns() {
  gantt(section("Runs on nodes", "One row for each GPU, node by node. GPUs of a node are interchangeable: the row of a job within a node has no meaning."));
}

function figures() {
  const card = section("All figures", "Best in bold. Percentiles are linear between jobs.");
  const head = node("tr", {}, node("th", { scope: "col" }, "figure"), ...RUNS.map((run) =>
    node("th", { scope: "col" }, node("span", { class: "dot", style: { background: run.color } }), run.name)));
  const rows = DATA.table.map((row) => node("tr", {}, node("td", {}, row.label),
    ...row.texts.map((text, at) => node("td", { class: row.best.includes(at) ? "best" : null }, text))));
  card.append(node("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All figures" },
    node("table", { class: "figures" }, node("thead", {}, head), node("tbody", {}, ...rows))));
}

function assumptions() {
  const card = section("Assumptions and command", "");
  const text = (value) => (value === null ? "none" : Array.isArray(value) ? value.join(", ") : String(value));
  const names = Object.keys(RUNS[0].assumptions).filter((name) => name !== "command");
  const facts = names.map((name) => {
    const values = RUNS.map((run) => text(run.assumptions[name]));
    const same = values.every((value) => value === values[0]);
    const shown = same ? values[0] : RUNS.map((run, at) => `${run.name}: ${values[at]}`).join("; ");
    return name === "policy" ? null : node("div", {}, node("dt", {}, name.replace(/_s$/, ", seconds").replaceAll("_", " ")), node("dd", {}, shown));
  });
  const versions = Object.entries(DATA.versions).map(([name, value]) => node("div", {}, node("dt", {}, name), node("dd", {}, value)));
  card.append(node("pre", { tabindex: 0, role: "region", "aria-label": "Command" }, DATA.command), node("dl", { class: "facts" }, ...facts, ...versions));
  main.append(node("footer", {}, `Made by headway-sim on ${DATA.made}.`));
}

top();
legend();
tiles();
distributions();
overTime();
contention();
chartOfRuns();
figures();
assumptions();
redrawAll();
