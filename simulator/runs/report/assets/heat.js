// Mean slowdown of one model while it shares a node or a link with another.

function heatMap(holder) {
  const withHeat = RUNS.filter((run) => run.heat);
  const choose = node("select", { "aria-label": "Policy", onchange: draw },
    ...withHeat.map((run, at) => node("option", { value: at }, run.name)));
  const grid = node("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Slowdown by pair of models" });
  const scale = node("div", { class: "scale" });
  holder.append(node("div", { class: "bar" }, choose), grid, scale);
  drawings.push({ redraw: draw });

  function shade(value, most) {
    const share = most > 1 ? Math.sqrt(Math.min(1, Math.max(0, (value - 1) / (most - 1)))) : 0;
    return `color-mix(in oklab, ${color("hot")} ${(100 * share).toFixed(1)}%, ${color("grid")})`;
  }

  function draw() {
    const { heat } = withHeat[choose.value || 0];
    const values = [...heat.alone, ...heat.slowdown.flat()].filter((value) => value !== null);
    const most = Math.max(1.05, ...values);
    const columns = ["alone", ...heat.models];
    const cells = [node("div", {}), ...columns.map((name) => node("div", { class: "col" }, name))];
    heat.models.forEach((model, row) => {
      cells.push(node("div", { class: "row" }, model));
      columns.forEach((other, column) => {
        const value = column ? heat.slowdown[row][column - 1] : heat.alone[row];
        const hours = column ? heat.hours[row][column - 1] : null;
        cells.push(cell(model, other, value, hours, most));
      });
    });
    grid.replaceChildren(node("div", {
      class: "heat", style: { gridTemplateColumns: `auto repeat(${columns.length}, minmax(46px, auto))` },
    }, ...cells));
    const stops = [0, 0.25, 0.5, 0.75, 1].map((share) => shade(1 + share * (most - 1), most)).join(", ");
    scale.replaceChildren("1 (full speed)", node("i", { style: { background: `linear-gradient(90deg, ${stops})` } }),
      `${digits(most)} (takes ${digits(most)} times as long)`);
  }

  function cell(model, other, value, hours, most) {
    if (value === null) return node("div", { class: "cell none" }, "·");
    const dark = Math.sqrt((value - 1) / (most - 1)) > 0.6 && document.documentElement.dataset.theme === "light";
    return node("div", {
      class: "cell", style: { background: shade(value, most), color: dark ? "#fff" : "" },
      onmousemove: (event) => showTip(event, node("b", {}, model), hours === null ? " alone" : ` beside ${other}`,
        tipTable([["", "slowdown", `${value.toFixed(3)} ×`], ...(hours === null ? [] : [["", "together for", timeText(hours * 3600)]])])),
      onmouseleave: hideTip,
    }, value.toFixed(2));
  }

  draw();
}
