// Gantt chart of all runs, one row for each GPU. It draws only bars in view, and skips bars hidden by earlier ones.

function gantt(holder) {
  const AXIS = 26;
  const GUTTER = 74;
  const TICKS = 2 ** 32 - 1;
  const trace = DATA.trace;
  const jobs = {
    submit: unpacked(trace.submit, Float64Array), duration: unpacked(trace.duration, Float64Array),
    gpus: unpacked(trace.gpus, Uint32Array), model: unpacked(trace.model, Uint32Array), user: unpacked(trace.user, Uint32Array),
  };
  const firstLane = [0];
  for (const gpus of trace.node_gpus) firstLane.push(firstLane[firstLane.length - 1] + gpus);
  const lanes = firstLane[firstLane.length - 1];
  const sizes = [...new Set(jobs.gpus)].sort((one, other) => one - other);
  const colourings = {
    job: ["job", (job) => PALETTE[(job * 7) % PALETTE.length], null],
    size: ["GPUs asked for", (job) => sizeColor(jobs.gpus[job]), sizes.slice(0, 10).map((size) => [sizeColor(size), String(size)])],
  };
  if (trace.models.length > 1) colourings.model = named("model", trace.models, jobs.model);
  if (trace.users.length > 1) colourings.user = named("user", trace.users, jobs.user);
  const height = 560;
  const view = { from: 0, to: 1, lane: 0, tall: Math.max((height - AXIS) / lanes, 0.05) };
  const least = view.tall;
  let run = RUNS[0];
  let parts = null;
  let pinned = null;
  let hovered = null;
  let drag = null;

  function named(what, names, column) {
    const pick = (at) => PALETTE[at % PALETTE.length];
    return [what, (job) => pick(column[job]), names.slice(0, 10).map((name, at) => [pick(at), name || "not named"])];
  }

  function sizeColor(size) {
    const share = sizes.length > 1 ? sizes.indexOf(size) / (sizes.length - 1) : 0;
    return `hsl(${Math.round(222 - 200 * share)} ${Math.round(58 + 18 * share)}% ${Math.round(60 - 6 * share)}%)`;
  }

  const choose = node("select", { "aria-label": "Policy", onchange: () => pick(RUNS[choose.value]) },
    ...RUNS.map((each, at) => node("option", { value: at }, each.name)));
  const colour = node("select", { "aria-label": "Colour", onchange: recolour },
    ...Object.entries(colourings).map(([key, [label]]) => node("option", { value: key }, label)));
  const rows = node("input", { type: "range", min: 0, max: 100, value: 0, "aria-label": "Height of a row", oninput: stretch });
  const keys = node("div", { class: "bar" });
  const note = node("p", { class: "note" });
  holder.append(
    node("div", { class: "bar" }, choose, node("label", {}, "colours by", colour), node("label", {}, "rows", rows),
      node("button", { onclick: () => zoom(0.5, 0.5), "aria-label": "Zoom in" }, "+"),
      node("button", { onclick: () => zoom(0.5, 2), "aria-label": "Zoom out" }, "−"),
      node("button", { onclick: reset }, "all"),
      node("span", { class: "push" }, "drag to move · Ctrl + wheel or + − to zoom · click a job to keep it lit")),
    keys);
  const chart = node("div", {
    class: "chart", tabindex: 0, role: "application", "aria-label": "Gantt chart; arrow keys move, plus and minus zoom",
  });
  const strip = node("div", { class: "chart" });
  holder.append(chart, strip, note);
  const drawing = canvasIn(chart, height, draw);
  const overview = canvasIn(strip, 46, drawOverview);
  drawing.canvas.style.cursor = "grab";

  function pick(chosen) {
    run = chosen;
    const packed = run.gantt;
    parts = {
      job: unpacked(packed.job, Uint32Array), start: unpacked(packed.start, Uint32Array), end: unpacked(packed.end, Uint32Array),
      lane: unpacked(packed.lane, Uint32Array), gpus: unpacked(packed.gpus, Uint16Array),
    };
    note.textContent = packed.parts > parts.job.length
      ? `The longest of ${packed.parts.toLocaleString("en")} runs on a node are drawn.` : "";
    recolour();
  }

  function recolour() {
    const [, of, legend] = colourings[colour.value];
    parts.color = Array.from(parts.job, of);
    keys.replaceChildren(...(legend || []).map(([shade, name]) =>
      node("label", {}, node("span", { class: "dot", style: { background: shade } }), name)));
    drawing.redraw();
    overview.redraw();
  }

  function reset() {
    Object.assign(view, { from: 0, to: 1, lane: 0, tall: least });
    rows.value = 0;
    pinned = null;
    both();
  }

  function both() {
    drawing.redraw();
    overview.redraw();
  }

  function stretch() {
    const middle = view.lane + (height - AXIS) / view.tall / 2;
    view.tall = least * (Math.max(18, least * 2) / least) ** (rows.value / 100);
    view.lane = middle - (height - AXIS) / view.tall / 2;
    keepIn();
    both();
  }

  function zoom(share, times) {
    const at = view.from + share * (view.to - view.from);
    const wide = Math.min(1, Math.max((view.to - view.from) * times, 1e-7));
    view.from = at - share * wide;
    view.to = view.from + wide;
    keepIn();
    both();
  }

  function keepIn() {
    const wide = view.to - view.from;
    view.from = Math.min(Math.max(view.from, 0), 1 - wide);
    view.to = view.from + wide;
    view.lane = Math.min(Math.max(view.lane, 0), Math.max(0, lanes - (height - AXIS) / view.tall));
  }

  const seconds = (share) => run.begin + share * (run.end - run.begin);

  function draw(pen, width) {
    const inner = width - GUTTER;
    const scale = inner / (view.to - view.from);
    const x = (share) => GUTTER + (share - view.from) * scale;
    const y = (lane) => AXIS + (lane - view.lane) * view.tall;
    background(pen, width, y);
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, AXIS, inner, height - AXIS);
    pen.clip();
    bars(pen, x, y, width, (part) => pinned !== null && parts.job[part] !== pinned);
    outline(pen, x, y);
    pen.restore();
    names(pen, width, y);
    axis(pen, x, width);
  }

  function background(pen, width, y) {
    trace.node_gpus.forEach((gpus, at) => {
      const top = y(firstLane[at]);
      if (at % 2 || top > height || top + gpus * view.tall < AXIS) return;
      pen.fillStyle = color("grid");
      pen.globalAlpha = 0.6;
      pen.fillRect(GUTTER, Math.max(top, AXIS), width - GUTTER, Math.min(top + gpus * view.tall, height) - Math.max(top, AXIS));
      pen.globalAlpha = 1;
    });
  }

  // Bars are sorted by node and start: a bar that ends before the last pixel drawn in its row is skipped.
  function bars(pen, x, y, width, dim) {
    const drawn = new Float32Array(lanes).fill(-1);
    const gap = view.tall > 5 ? 1 : 0;
    let ink = "";
    for (let part = 0; part < parts.job.length; part++) {
      const end = parts.end[part] / TICKS;
      const start = parts.start[part] / TICKS;
      if (end < view.from || start > view.to) continue;
      const lane = parts.lane[part];
      const top = y(lane);
      const tall = parts.gpus[part] * view.tall;
      if (top > height || top + tall < AXIS) continue;
      const right = Math.min(x(end), width);
      if (right < drawn[lane] + 0.5) continue;
      const left = Math.max(x(start), GUTTER, drawn[lane]);
      for (let other = lane; other < lane + parts.gpus[part]; other++) drawn[other] = right;
      const shade = dim(part) ? "dim" : parts.color[part];
      if (shade !== ink) {
        ink = shade;
        pen.fillStyle = ink === "dim" ? color("line") : ink;
      }
      const wide = right - left;
      pen.fillRect(left, top + gap / 2, Math.max(wide > 4 ? wide - 0.7 : wide, 0.6), Math.max(tall - gap, 0.4));
    }
  }

  function outline(pen, x, y) {
    const job = hovered ?? pinned;
    if (job === null) return;
    pen.strokeStyle = color("ink");
    pen.lineWidth = 1.5;
    for (let part = 0; part < parts.job.length; part++) {
      if (parts.job[part] !== job) continue;
      const left = x(parts.start[part] / TICKS);
      pen.strokeRect(left, y(parts.lane[part]) + 0.5, Math.max(x(parts.end[part] / TICKS) - left, 1.5), parts.gpus[part] * view.tall - 1);
    }
  }

  function names(pen, width, y) {
    pen.fillStyle = color("card");
    pen.fillRect(0, 0, GUTTER, height);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    let free = AXIS;
    trace.nodes.forEach((name, at) => {
      const middle = (y(firstLane[at]) + y(firstLane[at + 1])) / 2;
      if (middle < free + 5 || middle > height - 6) return;
      free = middle + 9;
      pen.fillStyle = color("soft");
      pen.fillText(name.length > 10 ? `${name.slice(0, 9)}…` : name, GUTTER - 9, middle);
    });
  }

  function axis(pen, x, width) {
    pen.fillStyle = color("card");
    pen.fillRect(0, 0, width, AXIS);
    pen.strokeStyle = color("line");
    pen.beginPath();
    pen.moveTo(GUTTER, AXIS - 0.5);
    pen.lineTo(width, AXIS - 0.5);
    pen.stroke();
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const whole = run.end - run.begin;
    for (const { at, text } of timeTicks(view.from * whole, view.to * whole, Math.max(2, (width - GUTTER) / 120))) {
      const place = x(at / whole);
      const wide = pen.measureText(text).width / 2;
      if (place - wide < GUTTER - 30 || place + wide > width) continue;
      pen.fillStyle = color("soft");
      pen.fillText(text, place, AXIS / 2);
      pen.strokeStyle = color("line");
      pen.beginPath();
      pen.moveTo(place, AXIS - 5);
      pen.lineTo(place, AXIS);
      pen.stroke();
    }
    pen.textAlign = "left";
    pen.fillStyle = color("faint");
    pen.fillText("node", 8, AXIS / 2);
  }

  // Overview below: busy GPUs over the whole run, and the part in view

  function drawOverview(pen, width, tall) {
    const inner = width - GUTTER;
    const values = run.utilization;
    pen.fillStyle = run.color;
    pen.globalAlpha = 0.35;
    pen.beginPath();
    pen.moveTo(GUTTER, tall - 4);
    values.forEach((value, at) => {
      pen.lineTo(GUTTER + (at / values.length) * inner, tall - 4 - value * (tall - 10));
      pen.lineTo(GUTTER + ((at + 1) / values.length) * inner, tall - 4 - value * (tall - 10));
    });
    pen.lineTo(width, tall - 4);
    pen.fill();
    pen.globalAlpha = 1;
    pen.fillStyle = color("faint");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillText("GPUs busy", GUTTER - 9, tall / 2);
    pen.strokeStyle = color("accent");
    pen.lineWidth = 1.5;
    const left = GUTTER + view.from * inner;
    pen.strokeRect(left + 0.75, 3, Math.max((view.to - view.from) * inner - 1.5, 3), tall - 6);
  }

  overview.canvas.style.cursor = "pointer";
  overview.canvas.addEventListener("mousedown", (event) => moveTo(event));
  overview.canvas.addEventListener("mousemove", (event) => {
    if (event.buttons & 1) moveTo(event);
  });

  function moveTo(event) {
    const wide = view.to - view.from;
    view.from = (event.offsetX - GUTTER) / (overview.width - GUTTER) - wide / 2;
    view.to = view.from + wide;
    keepIn();
    both();
  }

  // Mouse and keyboard

  function partAt(event) {
    const share = view.from + ((event.offsetX - GUTTER) / (drawing.width - GUTTER)) * (view.to - view.from);
    const lane = Math.floor(view.lane + (event.offsetY - AXIS) / view.tall);
    if (event.offsetX < GUTTER || event.offsetY < AXIS || lane < 0 || lane >= lanes) return -1;
    const slack = (1.5 / (drawing.width - GUTTER)) * (view.to - view.from);
    for (let part = 0; part < parts.job.length; part++) {
      if (parts.lane[part] > lane || parts.lane[part] + parts.gpus[part] <= lane) continue;
      if (parts.start[part] / TICKS <= share + slack && parts.end[part] / TICKS >= share - slack) return part;
    }
    return -1;
  }

  function describe(event, part) {
    const job = parts.job[part];
    const start = seconds(parts.start[part] / TICKS);
    const end = seconds(parts.end[part] / TICKS);
    const facts = [
      ["", "GPUs", `${jobs.gpus[job]}: ${whereOf(part)}`],
      ["", "submitted", `at ${timeText(jobs.submit[job] - run.begin)}`],
      ["", "this run", `${timeText(start - run.begin)} to ${timeText(end - run.begin)}`],
      ["", "lasting", timeText(end - start)],
      ["", "alone it takes", timeText(jobs.duration[job])],
    ];
    if (trace.models[jobs.model[job]]) facts.unshift(["", "model", trace.models[jobs.model[job]]]);
    if (trace.users[jobs.user[job]]) facts.push(["", "user", trace.users[jobs.user[job]]]);
    showTip(event, node("b", {}, trace.ids[job]), tipTable(facts));
  }

  // Return all nodes of the run: its parts start and end together.
  function whereOf(part) {
    const held = new Map();
    for (let other = 0; other < parts.job.length; other++) {
      if (parts.job[other] !== parts.job[part] || parts.start[other] !== parts.start[part] || parts.end[other] !== parts.end[part]) continue;
      const at = nodeOf(parts.lane[other]);
      held.set(at, (held.get(at) || 0) + parts.gpus[other]);
    }
    const all = [...held].slice(0, 6).map(([at, gpus]) => `${gpus} of ${trace.nodes[at]}`).join(", ");
    return held.size > 6 ? `${all} and ${held.size - 6} more nodes` : all;
  }

  function nodeOf(lane) {
    let low = 0;
    let high = firstLane.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (firstLane[middle] <= lane) low = middle;
      else high = middle;
    }
    return low;
  }

  drawing.canvas.addEventListener("mousedown", (event) => {
    drag = { x: event.clientX, y: event.clientY, moved: false, ...view };
    drawing.canvas.style.cursor = "grabbing";
  });
  window.addEventListener("mousemove", (event) => {
    if (!drag) return;
    const dx = event.clientX - drag.x;
    const dy = event.clientY - drag.y;
    drag.moved = drag.moved || Math.abs(dx) + Math.abs(dy) > 3;
    if (!drag.moved) return;
    const shift = (dx / (drawing.width - GUTTER)) * (drag.to - drag.from);
    Object.assign(view, { from: drag.from - shift, to: drag.to - shift, lane: drag.lane - dy / view.tall });
    keepIn();
    hideTip();
    both();
  });
  window.addEventListener("mouseup", (event) => {
    if (!drag) return;
    if (!drag.moved) {
      const part = partAt(event);
      pinned = part < 0 || parts.job[part] === pinned ? null : parts.job[part];
      drawing.redraw();
    }
    drag = null;
    drawing.canvas.style.cursor = "grab";
  });
  drawing.canvas.addEventListener("mousemove", (event) => {
    if (drag && drag.moved) return;
    const part = partAt(event);
    const job = part < 0 ? null : parts.job[part];
    if (job !== hovered) {
      hovered = job;
      drawing.redraw();
    }
    if (part < 0) hideTip();
    else describe(event, part);
  });
  drawing.canvas.addEventListener("mouseleave", () => {
    hovered = null;
    hideTip();
    drawing.redraw();
  });
  drawing.canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.min(1, Math.max(0, (event.offsetX - GUTTER) / (drawing.width - GUTTER))), Math.exp(event.deltaY * 0.0022));
  }, { passive: false });
  drawing.canvas.addEventListener("dblclick", (event) => {
    zoom(Math.min(1, Math.max(0, (event.offsetX - GUTTER) / (drawing.width - GUTTER))), 0.35);
  });
  chart.addEventListener("keydown", (event) => {
    const step = (view.to - view.from) / 8;
    const moves = {
      ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -30 / view.tall], ArrowDown: [0, 30 / view.tall],
    };
    if (event.key === "+" || event.key === "=") zoom(0.5, 0.6);
    else if (event.key === "-") zoom(0.5, 1 / 0.6);
    else if (moves[event.key]) {
      const [across, down] = moves[event.key];
      Object.assign(view, { from: view.from + across, to: view.to + across, lane: view.lane + down });
      keepIn();
      both();
    } else return;
    event.preventDefault();
  });

  pick(run);
}
