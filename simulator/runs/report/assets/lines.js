// Lines, one for each policy. `wanted`: of(run) gives [xs, ys]; x is "log", "logtime" or "time".

function lineChart(holder, wanted) {
  const edge = { left: 52, right: 16, top: 10, bottom: wanted.quietX ? 10 : 40 };
  let hover = null;
  const lines = RUNS.map((run) => ({ run, xs: wanted.of(run)[0], ys: wanted.of(run)[1] }));
  const log = wanted.x !== "time";
  const count = wanted.height < 200 ? 3 : 5;
  const drawing = canvasIn(holder, wanted.height || 280, draw);

  function shown() {
    return lines.filter((line) => line.run.shown && line.xs.length);
  }

  function frame(width, height) {
    const all = shown();
    const positive = (value) => value > 0;
    let low = Math.min(...all.map((line) => (log ? line.xs.find(positive) ?? 1 : line.xs[0])));
    let high = Math.max(...all.map((line) => line.xs[line.xs.length - 1]));
    if (wanted.x === "log") low = Math.min(low, 1);
    if (!(high > low)) high = log ? low * 10 : low + 1;
    const peak = Math.max(...all.map((line) => line.ys.reduce((most, value) => Math.max(most, value), 0)), 1e-9);
    const top = wanted.yMax || niceTop(peak);
    const scale = log ? Math.log : (value) => value;
    const inner = width - edge.left - edge.right;
    const tall = height - edge.top - edge.bottom;
    return {
      low, high, top,
      x: (value) => edge.left + inner * (scale(Math.max(value, low)) - scale(low)) / (scale(high) - scale(low)),
      y: (value) => edge.top + tall * (1 - value / top),
      back(pixel) {
        const share = Math.min(1, Math.max(0, (pixel - edge.left) / inner));
        return log ? Math.exp(Math.log(low) + share * (Math.log(high) - Math.log(low))) : low + share * (high - low);
      },
    };
  }

  function niceTop(peak) {
    const ticks = niceTicks(0, peak, count);
    const step = ticks.length > 1 ? ticks[1] - ticks[0] : peak;
    return Math.ceil(peak / step - 1e-9) * step;
  }

  function draw(pen, width, height) {
    if (!shown().length) return;
    const place = frame(width, height);
    axes(pen, place, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(edge.left - 1, edge.top - 2, width - edge.left - edge.right + 2, height - edge.top - edge.bottom + 4);
    pen.clip();
    pen.lineWidth = 2;
    pen.lineJoin = "round";
    for (const line of shown()) {
      pen.strokeStyle = line.run.color;
      pen.setLineDash(line.run.dash);
      pen.beginPath();
      line.xs.forEach((value, at) => pen.lineTo(place.x(value), place.y(line.ys[at])));
      pen.stroke();
    }
    pen.setLineDash([]);
    pen.restore();
    if (hover !== null) cross(pen, place, height);
  }

  function axes(pen, place, width, height) {
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const value of niceTicks(0, place.top, count)) {
      pen.strokeStyle = color(value ? "grid" : "line");
      rule(pen, edge.left, place.y(value), width - edge.right, place.y(value));
      pen.fillStyle = color("soft");
      pen.fillText(wanted.yText(value), edge.left - 8, place.y(value));
    }
    const room = Math.max(2, Math.floor((width - edge.left) / 110));
    const ticks = log ? logTicks(place.low, place.high, wanted.x === "logtime") : timeTicks(place.low, place.high, room);
    pen.textAlign = "center";
    pen.textBaseline = "top";
    let free = edge.left - 30;
    for (const { at, text } of ticks) {
      const x = place.x(at);
      pen.strokeStyle = color("grid");
      rule(pen, x, edge.top, x, height - edge.bottom);
      const wide = pen.measureText(text).width;
      if (wanted.quietX || x - wide / 2 < free || x + wide / 2 > width) continue;
      free = x + wide / 2 + 8;
      pen.fillStyle = color("soft");
      pen.fillText(text, x, height - edge.bottom + 7);
    }
    if (wanted.quietX) return;
    pen.fillStyle = color("faint");
    pen.fillText(wanted.xLabel, edge.left + (width - edge.left - edge.right) / 2, height - 15);
  }

  function rule(pen, x0, y0, x1, y1) {
    pen.beginPath();
    pen.moveTo(Math.round(x0) + 0.5, Math.round(y0) + 0.5);
    pen.lineTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
    pen.stroke();
  }

  function cross(pen, place, height) {
    pen.strokeStyle = color("faint");
    pen.lineWidth = 1;
    rule(pen, place.x(hover), edge.top, place.x(hover), height - edge.bottom);
    for (const line of shown()) {
      const value = valueAt(line, hover);
      if (value === null) continue;
      pen.fillStyle = line.run.color;
      pen.strokeStyle = color("card");
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(place.x(hover), place.y(value), 4.5, 0, 7);
      pen.fill();
      pen.stroke();
    }
  }

  function valueAt(line, x) {
    const { xs, ys } = line;
    if (x < xs[0]) return log ? 0 : null;
    if (x >= xs[xs.length - 1]) return log ? ys[ys.length - 1] : null;
    let low = 0;
    let high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] <= x) low = middle;
      else high = middle;
    }
    if (!log) return ys[low];
    const share = xs[high] > xs[low] ? (x - xs[low]) / (xs[high] - xs[low]) : 1;
    return ys[low] + share * (ys[high] - ys[low]);
  }

  const chart = {
    hover(x) {
      hover = x;
      drawing.redraw();
    },
  };
  const together = wanted.together || [];
  together.push(chart);
  drawing.canvas.addEventListener("mousemove", (event) => {
    if (!shown().length) return;
    const x = frame(drawing.width, drawing.height).back(event.offsetX);
    for (const each of together) each.hover(x);
    const rows = shown().map((line) => [line, valueAt(line, x)]).filter(([, value]) => value !== null);
    rows.sort((one, other) => other[1] - one[1]);
    showTip(event, node("div", { class: "quiet" }, wanted.xTip(x)),
      tipTable(rows.map(([line, value]) => [line.run.color, line.run.name, wanted.yTip(value)])));
  });
  drawing.canvas.addEventListener("mouseleave", () => {
    for (const each of together) each.hover(null);
    hideTip();
  });
  return drawing;
}
