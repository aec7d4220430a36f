// The appearance of numbers and series.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

// ---- Numbers -------------------------------------------------------------------------------

const digits = (value, count = 3) => {
  if (value === 0) return "0";
  const decimals = Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(decimals, 8));
};
const scaled = (value, units) => {
  const [size, unit] = units.find(([size]) => Math.abs(value) >= size) ?? units.at(-1);
  return `${digits(value / size)} ${unit}`;
};
const show = {
  throughput: (v) => `${digits(v)} GB/s`,
  time: (v) => scaled(v, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]),
  ratio: (v) => v.toFixed(3),
  alloc_time: (v) => show.time(v),
  footprint: (v) => `${digits(v)} MiB`,
  cpu: (v) => `${digits(v)} s/GB`,
  latency: (v) => show.time(v),
  bytes_rate: (v) => scaled(v, [[1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]]),
};
// By the mode's name if its unit has prefixes, otherwise with its label.
const shown = (mode, value) => (show[mode.name] ? show[mode.name](value) : `${digits(value)} ${mode.label}`);
const bytes = (v) => {
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (v >= size) return `${+(v / size).toFixed(2)} ${unit}`;
  }
  return `${v} B`;
};
// A count along an axis, which has room for four characters.
const many = (v) => (v >= 1e6 ? `${+(v / 1e6).toPrecision(3)}M` : v >= 1e4 ? `${+(v / 1e3).toPrecision(3)}k` : String(v));
// Along an axis of times.
const short = (v) => (v >= 1e9 ? `${+(v / 1e9).toPrecision(3)} s` : v >= 1e6 ? `${+(v / 1e6).toPrecision(3)} ms`
  : v >= 1e3 ? `${+(v / 1e3).toPrecision(3)} µs` : `${+v.toPrecision(3)} ns`);

// Along any other axis.
const plain = (v) => (Math.abs(v) >= 1e9 ? `${+(v / 1e9).toPrecision(3)}G` : Math.abs(v) >= 1e6 ? `${+(v / 1e6).toPrecision(3)}M` : String(+v.toPrecision(6)));
const axisLabel = (mode) => (["time", "alloc_time", "latency"].includes(mode.name) ? short : plain);

// ---- Colours -------------------------------------------------------------------------------

const probe = document.body.appendChild(make("span", { hidden: "" }));
const colour = (name) => {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
};
const faded = (css, share) => css.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);
// uPlot thins logarithmic splits by its own rule; these are thinned already.
const ALL = (u, splits) => splits;
const DASHES = [[], [6, 3], [2, 3], [9, 3, 2, 3]];
const PALETTE = 8;
const FONT = (px) => `${px}px ${getComputedStyle(document.body).fontFamily}`;

// The style of a series follows from its role; other series get colours, dashes and marks in turn.
const looks = (view, shape) => {
  let other = 0;
  // The first two colours are haul's and the baseline's if these are among the series.
  const own = view.series.some((series) => series.role === "haul" || series.role === "baseline") ? 2 : 0;
  return view.series.map((series) => {
    if (series.role === "haul") return { stroke: "haul", width: 2.5, dash: [], mark: 0 };
    if (series.role === "baseline") return { stroke: "baseline", width: 2, dash: [], mark: 1 };
    if (series.role === "best") return { stroke: "best", width: 1.75, dash: [6, 3], mark: 2 };
    if (series.role === "limit") return { stroke: "limit", width: 1.25, dash: [2, 3], mark: -1 };
    const index = other++;
    const first = shape === "sizes" ? 3 : own;
    const turn = first + (index % (PALETTE - first));
    const dash = shape === "sizes" ? DASHES[Math.floor(index / (PALETTE - first)) % 4] : [];
    const modelled = series.kind === "modelled" ? [4, 4] : dash;
    return { stroke: `s${turn}`, width: shape === "sizes" ? 1.25 : 2, dash: modelled, mark: index % 5 };
  });
};

const MARKS = [
  (c, x, y, r) => c.arc(x, y, r, 0, 2 * Math.PI),
  (c, x, y, r) => c.rect(x - r * 0.88, y - r * 0.88, r * 1.76, r * 1.76),
  (c, x, y, r) => polygon(c, [[x, y - r * 1.3], [x + r * 1.3, y], [x, y + r * 1.3], [x - r * 1.3, y]]),
  (c, x, y, r) => polygon(c, [[x, y - r * 1.15], [x + r * 1.15, y + r * 0.9], [x - r * 1.15, y + r * 0.9]]),
  (c, x, y, r) => polygon(c, [[x, y + r * 1.15], [x + r * 1.15, y - r * 0.9], [x - r * 1.15, y - r * 0.9]]),
];
const polygon = (c, points) => {
  points.forEach(([x, y], index) => (index ? c.lineTo(x, y) : c.moveTo(x, y)));
  c.closePath();
};
const MARK_PATHS = [
  "M13 6a3 3 0 1 0 6 0a3 3 0 1 0-6 0", "M13.3 3.3h5.4v5.4h-5.4z", "M16 2.2l3.8 3.8l-3.8 3.8l-3.8-3.8z",
  "M16 2.5l3.4 6.2h-6.8z", "M16 9.5l3.4-6.2h-6.8z",
];
const swatch = (look, shape) => {
  const holder = document.createElement("template");
  const line = shape === "dots" ? "" : `<path d="M1 6h30" fill="none" stroke="var(--${look.stroke})" stroke-width="${look.width}" stroke-dasharray="${look.dash.join(" ")}"/>`;
  const mark = shape === "dots" ? `<path d="${MARK_PATHS[look.mark]}" fill="var(--${look.stroke})"/>` : "";
  const box = shape === "dots" ? "10 0 12 12" : "0 0 32 12";
  holder.innerHTML = `<svg aria-hidden="true" width="${shape === "dots" ? 12 : 32}" height="12" viewBox="${box}">${line}${mark}</svg>`;
  return holder.content.firstChild;
};
