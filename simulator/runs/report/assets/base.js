// Common parts of all drawings: data, colours, formats of numbers, axes, and the tooltip.

const DATA = JSON.parse(document.getElementById("data").textContent);
const PALETTE = ["#4269d0", "#e8a20c", "#f2604a", "#2fa58b", "#a463f2", "#e7649a", "#9c6b4e", "#6cb33f", "#59b4e6", "#8a93a3"];
const RUNS = DATA.runs.map((run, at) => ({
  ...run, color: PALETTE[at % PALETTE.length], dash: at < PALETTE.length ? [] : [6, 3], shown: true,
}));
const drawings = [];

function node(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(made.style, value);
    else if (value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function unpacked(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  return new Kind(bytes.buffer);
}

// Formats of numbers

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function digits(value, most = 3) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(+value.toPrecision(size >= 100 ? 3 : most));
}

function timeText(seconds) {
  const [length, unit] = UNITS.find(([length]) => Math.abs(seconds) >= 2 * length) || [1, "s"];
  return `${digits(seconds / length)} ${unit}`;
}

function shareText(share) {
  return `${(100 * share).toFixed(1)} %`;
}

// Axes: a list of {at, text}

function niceTicks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((times) => times * power).find((each) => each >= rough * 0.999);
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) ticks.push(at);
  return ticks;
}

function timeTicks(low, high, count) {
  const steps = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200];
  const rough = (high - low) / Math.max(count, 1);
  let step = steps.find((each) => each >= rough);
  if (rough < 1) step = niceTicks(0, high - low, count)[1] || rough;
  if (!step) step = 86400 * (niceTicks(0, (high - low) / 86400, count)[1] || 1);
  if (step > 43200) step = Math.max(86400, Math.round(step / 86400) * 86400);
  const [length, unit] = UNITS.find(([length]) => step >= length) || [1, "s"];
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) {
    ticks.push({ at, text: `${digits(at / length, 6)} ${unit}` });
  }
  return ticks;
}

const LOG_TIMES = [
  [0.001, "1 ms"], [0.01, "10 ms"], [0.1, "0.1 s"], [1, "1 s"], [10, "10 s"], [60, "1 min"], [600, "10 min"], [3600, "1 h"], [21600, "6 h"],
  [86400, "1 d"], [604800, "1 wk"], [2592000, "30 d"], [8640000, "100 d"], [31557600, "1 yr"], [315576000, "10 yr"],
];

function logTicks(low, high, times) {
  if (times) return LOG_TIMES.filter(([at]) => at >= low * 0.999 && at <= high * 1.001).map(([at, text]) => ({ at, text }));
  const ticks = [];
  for (let power = Math.ceil(Math.log10(low) - 1e-9); 10 ** power <= high * 1.001; power++) {
    ticks.push({ at: 10 ** power, text: digits(10 ** power) });
  }
  if (ticks.length > 2) return ticks;
  return [1, 2, 5, 10, 20, 50, 100].filter((at) => at >= low * 0.999 && at <= high * 1.001).map((at) => ({ at, text: String(at) }));
}

// A canvas with the resolution of the screen, which is redrawn when its size or the theme changes

function canvasIn(holder, height, draw) {
  const canvas = node("canvas", { style: { height: `${height}px` } });
  holder.append(canvas);
  let wanted = false;
  const drawing = {
    canvas, height, width: 0,
    redraw() {
      if (wanted) return;
      wanted = true;
      requestAnimationFrame(() => {
        wanted = false;
        const width = holder.clientWidth;
        if (!width) return;
        const ratio = window.devicePixelRatio || 1;
        if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
          canvas.width = Math.round(width * ratio);
          canvas.height = Math.round(height * ratio);
        }
        drawing.width = width;
        const pen = canvas.getContext("2d");
        pen.setTransform(ratio, 0, 0, ratio, 0, 0);
        pen.clearRect(0, 0, width, height);
        pen.font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";
        draw(pen, width, height);
      });
    },
  };
  new ResizeObserver(drawing.redraw).observe(holder);
  drawings.push(drawing);
  return drawing;
}

function redrawAll() {
  for (const drawing of drawings) drawing.redraw();
}

// The tooltip: made of DOM nodes, so that names from a trace are never parsed as HTML

const tip = node("div", { id: "tip", role: "status" });
document.body.append(tip);

function showTip(event, ...children) {
  tip.replaceChildren(...children);
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  const right = event.clientX + 16 + box.width < window.innerWidth;
  tip.style.left = `${Math.max(4, right ? event.clientX + 16 : event.clientX - 16 - box.width)}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, window.innerHeight - box.height - 6))}px`;
}

function hideTip() {
  tip.style.display = "none";
}

function tipTable(rows) {
  const body = rows.map(([dot, name, value]) =>
    node("tr", {}, node("td", {}, dot ? node("span", { class: "dot", style: { background: dot } }) : "", name), node("td", {}, value)));
  return node("table", {}, node("tbody", {}, ...body));
}
