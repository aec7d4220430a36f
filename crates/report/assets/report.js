// Draws the plots of a haul report. What is drawn was decided when the page was made: here are only
// the canvas, the pointer, the keyboard and the theme.
(() => {
  "use strict";

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
  };
  const bytes = (v) => {
    for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
      if (v >= size) return `${+(v / size).toFixed(2)} ${unit}`;
    }
    return `${v} B`;
  };
  const short = (v) => (v >= 1e9 ? `${+(v / 1e9).toPrecision(3)} s` : v >= 1e6 ? `${+(v / 1e6).toPrecision(3)} ms`
    : v >= 1e3 ? `${+(v / 1e3).toPrecision(3)} µs` : `${+v.toPrecision(3)} ns`);

  // ---- Colours -------------------------------------------------------------------------------

  const probe = document.body.appendChild(make("span", { hidden: "" }));
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const faded = (css, share) => css.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);
  // uPlot thins logarithmic splits by its own rule; ours are thinned already.
  const ALL = (u, splits) => splits;
  const DASHES = [[], [6, 3], [2, 3], [9, 3, 2, 3]];
  const PALETTE = 8;
  const FONT = (px) => `${px}px ${getComputedStyle(document.body).fontFamily}`;

  // How a series looks: its role decides; the others take colours, dashes and marks in turn.
  const looks = (view, shape) => {
    let other = 0;
    return view.series.map((series) => {
      if (series.role === "haul") return { stroke: "haul", width: 2.5, dash: [], mark: 0 };
      if (series.role === "baseline") return { stroke: "baseline", width: 2, dash: [], mark: 1 };
      if (series.role === "best") return { stroke: "best", width: 1.75, dash: [6, 3], mark: 2 };
      if (series.role === "limit") return { stroke: "limit", width: 1.25, dash: [2, 3], mark: -1 };
      const index = other++;
      const first = shape === "sizes" ? 3 : 0;
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

  // ---- One plot ------------------------------------------------------------------------------

  class Plot {
    constructor(holder, plot) {
      this.holder = holder;
      this.plot = plot;
      this.view = plot.views[0];
      this.mode = 0;
      this.toggled = new Map();
      this.at = null;
      const figure = holder.parentElement;
      this.controls = figure.querySelector(".controls");
      this.legend = figure.querySelector(".legend");
      this.live = figure.querySelector("output");
      this.command = figure.querySelector(".rerun code");
      this.title = figure.querySelector("h2").lastChild.textContent.trim();
      this.prepare();
      this.drawControls();
      this.draw();
      new ResizeObserver(() => this.resize()).observe(holder);
    }

    get dots() { return this.plot.shape === "dots"; }

    prepare() {
      const { holder } = this;
      holder.replaceChildren();
      holder.tabIndex = 0;
      holder.setAttribute("role", "application");
      holder.setAttribute("aria-roledescription", "plot");
      holder.setAttribute("aria-label", `${this.title}. Arrow keys move through its values.`);
      this.canvas = holder.appendChild(make("div"));
      this.tip = holder.appendChild(make("div", { class: "tip", hidden: "", "aria-hidden": "true" }));
      holder.append(make("span", { class: "hint", "aria-hidden": "true" }, "← → move · Home End · Esc"));
      holder.addEventListener("keydown", (event) => this.key(event));
      holder.addEventListener("blur", () => this.leave());
    }

    // Controls: a button each for few values, a list for many.
    drawControls() {
      const rows = [];
      if (this.plot.modes.length > 1) {
        rows.push(this.choice("show", this.plot.modes.map((mode) => mode.label), this.mode, (index) => {
          this.mode = index;
          this.redraw();
        }));
      }
      this.plot.controls.forEach((control, position) => {
        rows.push(this.choice(control.label, control.values, this.view.choice[position], (index) => {
          this.view = this.nearest(position, index);
          this.redraw();
        }));
      });
      this.controls.replaceChildren(...rows);
    }

    choice(label, values, chosen, choose) {
      if (values.length > 5 || values.join("").length > 44) {
        const select = make("select", {}, ...values.map((value) => make("option", {}, value)));
        select.selectedIndex = chosen;
        select.addEventListener("change", () => choose(select.selectedIndex));
        return make("label", { class: "choice" }, make("span", {}, label), select);
      }
      const buttons = values.map((value, index) => {
        const button = make("button", { type: "button", "aria-pressed": String(index === chosen) }, value);
        button.addEventListener("click", () => {
          const position = [...this.controls.children].findIndex((row) => row.contains(button));
          choose(index);
          this.controls.children[position]?.querySelectorAll("button")[index]?.focus();
        });
        return button;
      });
      return make("div", { class: "choice", role: "group", "aria-label": label }, make("span", {}, label), make("div", {}, ...buttons));
    }

    // The view that has the new value and most of the old ones: not every combination was measured.
    nearest(position, index) {
      const same = (view) => view.choice.filter((value, at) => value === this.view.choice[at]).length;
      return this.plot.views.filter((view) => view.choice[position] === index).sort((a, b) => same(b) - same(a))[0] ?? this.view;
    }

    redraw() {
      this.drawControls();
      this.draw();
    }

    isShown(series) { return this.toggled.get(series.name) ?? series.shown; }

    has(series) { return series.y[this.mode].some((value) => value !== null); }

    draw() {
      this.looks = looks(this.view, this.plot.shape);
      this.chart?.destroy();
      this.at = null;
      this.tip.hidden = true;
      this.width = Math.max(this.holder.clientWidth, 200);
      this.chart = new uPlot(this.dots ? this.dotOptions() : this.lineOptions(), this.data(), this.canvas);
      if (this.dots) {
        this.chart.over.addEventListener("pointermove", (event) => this.hoverDots(event));
        this.chart.over.addEventListener("pointerleave", () => this.leave());
      }
      this.command.textContent = this.view.rerun;
      this.drawLegend();
    }

    data() { return [this.view.x, ...this.view.series.map((series) => series.y[this.mode])]; }

    resize() {
      const width = Math.max(this.holder.clientWidth, 200);
      if (width === this.width || this.holder.clientWidth === 0) return;
      this.draw();
    }

    drawLegend() {
      const buttons = this.view.series.flatMap((series, index) => {
        if (!this.has(series)) return [];
        const name = series.kind === "modelled" && !series.name.includes("modelled") ? `${series.name} (modelled)` : series.name;
        const button = make("button", { type: "button", "aria-pressed": String(this.isShown(series)) }, swatch(this.looks[index], this.plot.shape), name);
        button.addEventListener("click", () => {
          this.toggled.set(series.name, !this.isShown(series));
          this.draw();
          this.legend.querySelectorAll("button")[buttons.indexOf(button)]?.focus();
        });
        return [button];
      });
      const key = this.dots && this.view.series.some((series) => series.remark.some(Boolean));
      this.legend.replaceChildren(...buttons, ...(key ? [make("small", {}, "filled: a difference · hollow: none beyond the noise")] : []));
    }

    // ---- Lines -------------------------------------------------------------------------------

    lineOptions() {
      const sizes = this.plot.shape === "sizes";
      const mode = this.plot.modes[this.mode];
      const x = this.view.x;
      const [first, last] = [x[0], x.at(-1)];
      const narrow = this.width < 560;
      const axis = { stroke: colour("soft"), font: FONT(11.5), labelFont: FONT(11.5), labelSize: 18, labelGap: 2, ticks: { show: false } };
      return {
        width: this.width,
        height: narrow ? 300 : 400,
        legend: { show: false },
        padding: [18, 14, 0, narrow ? 0 : 4],
        cursor: {
          y: false, drag: { x: false, y: false },
          move: (u, left, top) => (left < 0 ? [left, top] : [u.valToPos(u.data[0][u.posToIdx(left)], "x"), top]),
          points: { size: 7, fill: (u, i) => colour(this.looks[i - 1].stroke), width: 0 },
        },
        scales: {
          x: sizes
            ? { time: false, distr: 3, log: 2, range: [first / (first === last ? 2 : 1.12), last * (first === last ? 2 : 1.12)] }
            : { time: false, range: first === last ? [first - 1, last + 1] : [first - (last - first) * 0.03, last + (last - first) * 0.03] },
          y: mode.log ? { distr: 3, log: 10, range: () => this.logRange() } : { range: () => this.range() },
        },
        axes: [
          {
            ...axis, size: 30, label: this.plot.x_title, gap: 6,
            grid: { stroke: colour("grid"), width: 1 },
            splits: () => this.xSplits(), filter: ALL,
            values: (u, splits) => splits.map((v) => (sizes ? bytes(v) : String(v))),
          },
          {
            ...axis, size: narrow ? 46 : 52, label: mode.title, gap: 5,
            grid: { stroke: colour("grid"), width: 1 },
            ...(mode.log ? { splits: () => this.logSplits(), filter: ALL, values: (u, splits) => splits.map(short) }
              : { values: (u, splits) => splits.map((v) => String(+v.toPrecision(6))) }),
          },
        ],
        series: [{}, ...this.view.series.map((series, index) => this.lineSeries(series, this.looks[index]))],
        hooks: {
          drawAxes: [(u) => this.drawGuides(u), (u) => this.drawBand(u)],
          draw: [(u) => this.drawIntervals(u)],
          setCursor: [(u) => this.hoverLine(u)],
        },
      };
    }

    lineSeries(series, look) {
      const stroke = colour(look.stroke);
      return {
        label: series.name, show: this.isShown(series), spanGaps: true, stroke, width: look.width, dash: look.dash,
        points: { show: look.mark >= 0 && this.view.x.length <= 64, size: look.width > 1.5 ? 5 : 4, fill: stroke, width: 0 },
      };
    }

    shownValues() {
      const found = this.view.series.filter((series) => this.isShown(series));
      // What the page is about sets the scale of a ratio; a kernel far off runs out of the frame.
      const main = this.plot.modes[this.mode].name === "ratio" ? found.filter((series) => series.role !== "other") : found;
      return (main.some((series) => this.has(series)) ? main : found);
    }

    range() {
      const mode = this.mode;
      const values = this.shownValues().flatMap((series) => [...series.y[mode], ...(this.plot.modes[mode].name === "ratio" ? [...series.low[mode], ...series.high[mode]] : [])]).filter((v) => v !== null);
      if (this.plot.modes[mode].name !== "ratio") return [0, Math.max(...values, 0) * 1.06 || 1];
      const low = Math.min(...values, 0.94), high = Math.max(...values, 1.06);
      const pad = (high - low) * 0.05;
      return [Math.max(0, low - pad), high + pad];
    }

    logRange() {
      const values = this.shownValues().flatMap((series) => series.y[this.mode]).filter((v) => v > 0);
      if (values.length === 0) return [1, 10];
      const low = Math.min(...values), high = Math.max(...values);
      return low === high ? [low / 2, high * 2] : [low / 1.3, high * 1.3];
    }

    logSplits() {
      const [low, high] = this.logRange();
      const decades = Math.log10(high / low);
      const steps = decades < 1.2 ? [1, 2, 3, 5, 7] : decades < 3 ? [1, 2, 5] : [1];
      const splits = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
        for (const step of steps) splits.push(step * 10 ** power);
      }
      return splits.filter((v) => v >= low && v <= high);
    }

    xSplits() {
      const x = this.view.x;
      if (this.plot.shape !== "sizes") {
        const step = Math.max(1, Math.ceil(x.length / (this.width / 40)));
        return x.filter((value, index) => index % step === 0);
      }
      const low = Math.ceil(Math.log2(x[0])), high = Math.floor(Math.log2(x.at(-1)));
      const step = Math.max(1, Math.ceil((high - low + 1) / (this.width / 58)));
      const splits = [];
      for (let power = low; power <= high; power++) if ((power - low) % step === 0) splits.push(2 ** power);
      return splits.length ? splits : [x[0]];
    }

    drawGuides(u) {
      const { ctx, bbox } = u;
      const dpr = devicePixelRatio;
      ctx.save();
      ctx.strokeStyle = colour("limit");
      ctx.fillStyle = colour("soft");
      ctx.font = FONT(10.5 * dpr);
      ctx.lineWidth = dpr;
      ctx.textBaseline = "bottom";
      ctx.textAlign = "left";
      let free = bbox.left - 1e4;
      for (const guide of this.plot.guides) {
        if (guide.x < u.scales.x.min || guide.x > u.scales.x.max) continue;
        const x = Math.round(u.valToPos(guide.x, "x", true)) + 0.5;
        ctx.setLineDash([dpr, 2 * dpr]);
        ctx.beginPath();
        ctx.moveTo(x, bbox.top - 3 * dpr);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        const label = this.width < 560 ? guide.label.split(" ")[0] : guide.label;
        const width = ctx.measureText(label).width;
        const left = Math.min(x - width / 2, bbox.left + bbox.width - width);
        if (left > free) ctx.fillText(label, left, bbox.top - 3 * dpr);
        free = Math.max(free, left + width + 6 * dpr);
      }
      ctx.restore();
    }

    // The noise floor around 1, size by size, and the line of no difference.
    drawBand(u) {
      if (this.plot.modes[this.mode].name !== "ratio") return;
      const floors = this.view.x.map((x, place) => Math.max(...this.view.series.map((series) => series.floor[place] ?? 0)));
      const { ctx, bbox } = u;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.fillStyle = colour("band");
      ctx.beginPath();
      const edge = (place, sign) => [u.valToPos(this.view.x[place], "x", true), u.valToPos(1 + sign * floors[place], "y", true)];
      floors.forEach((_, place) => ctx.lineTo(...edge(place, 1)));
      for (let place = floors.length - 1; place >= 0; place--) ctx.lineTo(...edge(place, -1));
      ctx.fill();
      ctx.restore();
    }

    drawIntervals(u) {
      if (this.plot.modes[this.mode].name !== "ratio") return;
      const { ctx, bbox } = u;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.lineWidth = devicePixelRatio;
      this.view.series.forEach((series, index) => {
        if (!this.isShown(series)) return;
        ctx.strokeStyle = faded(colour(this.looks[index].stroke), 0.7);
        ctx.beginPath();
        this.view.x.forEach((x, place) => {
          const [low, high] = [series.low[this.mode][place], series.high[this.mode][place]];
          if (low === null || high === null) return;
          const at = u.valToPos(x, "x", true);
          ctx.moveTo(at, u.valToPos(low, "y", true));
          ctx.lineTo(at, u.valToPos(high, "y", true));
        });
        ctx.stroke();
      });
      ctx.restore();
    }

    hoverLine(u) {
      const place = u.cursor.idx;
      if (place === null || place === undefined || u.cursor.left < 0) {
        this.tip.hidden = true;
        return;
      }
      this.at = place;
      const mode = this.plot.modes[this.mode].name;
      const rows = this.view.series
        .map((series, index) => ({ series, look: this.looks[index], value: series.y[this.mode][place] }))
        .filter(({ series, value }) => value !== null && this.isShown(series))
        .sort((a, b) => (mode === "throughput" ? b.value - a.value : a.value - b.value));
      this.fillTip(this.view.labels[place], rows.map(({ series, look, value }) =>
        [swatch(look, "lines"), series.name, show[mode](value), series.remark[place] ?? ""]));
      this.placeTip(u.bbox.left / devicePixelRatio + u.valToPos(this.view.x[place], "x"), u.bbox.top / devicePixelRatio + 8);
      this.said = `${this.view.labels[place]}: ${rows.map(({ series, value }) => `${series.name} ${show[mode](value)}${series.remark[place] ? `, ${series.remark[place]}` : ""}`).join("; ")}`;
    }

    // ---- Dots --------------------------------------------------------------------------------

    shownSeries() {
      return this.view.series.map((series, index) => ({ series, index })).filter(({ series }) => this.isShown(series) && this.has(series));
    }

    dotOptions() {
      const mode = this.plot.modes[this.mode];
      const rows = this.view.x.length;
      const lanes = Math.max(1, this.shownSeries().length);
      const context = document.createElement("canvas").getContext("2d");
      context.font = FONT(12);
      const widest = Math.max(...this.view.labels.map((label) => context.measureText(label).width));
      const gutter = Math.min(Math.ceil(widest) + 14, this.width * 0.36);
      const fit = (label) => {
        if (context.measureText(label).width <= gutter - 12) return label;
        let end = label.length;
        while (end > 1 && context.measureText(`${label.slice(0, end)}…`).width > gutter - 12) end--;
        return `${label.slice(0, end)}…`;
      };
      const [low, high] = mode.log ? this.dotLogRange() : this.dotRange();
      const axis = { stroke: colour("soft"), ticks: { show: false }, labelFont: FONT(11.5), labelSize: 18, labelGap: 2 };
      return {
        width: this.width,
        height: rows * Math.max(28, lanes * 10 + 14) + 62,
        legend: { show: false },
        padding: [6, 16, 0, 0],
        cursor: { show: false },
        scales: {
          x: { time: false, ori: 1, dir: -1, range: [-0.5, rows - 0.5] },
          y: mode.log ? { ori: 0, distr: 3, log: 10, range: [low, high] } : { ori: 0, range: [low, high] },
        },
        axes: [
          {
            ...axis, side: 3, size: gutter, gap: 8, font: FONT(12), stroke: colour("ink"), grid: { show: false },
            splits: () => this.view.x, values: () => this.view.labels.map(fit),
          },
          {
            ...axis, side: 2, size: 28, gap: 5, font: FONT(11.5), label: mode.title, grid: { stroke: colour("grid"), width: 1 },
            space: 56,
            ...(mode.log ? { splits: () => this.logSplits(), filter: ALL, values: (u, splits) => splits.map(short) }
              : { values: (u, splits) => splits.map((v) => String(+v.toPrecision(6))) }),
          },
        ],
        series: [{}, ...this.view.series.map(() => ({ paths: () => null, points: { show: false } }))],
        hooks: { drawAxes: [(u) => this.drawRows(u)], draw: [(u) => this.drawDots(u)] },
      };
    }

    dotRange() {
      const mode = this.mode;
      const values = this.shownSeries().flatMap(({ series }) =>
        [...series.y[mode], ...series.low[mode], ...series.high[mode], ...series.floor.flatMap((floor) => (floor === null ? [] : [1 - floor, 1 + floor]))]).filter((v) => v !== null);
      const low = Math.min(...values, 0.95), high = Math.max(...values, 1.05);
      const pad = (high - low) * 0.03;
      return [Math.max(0, low - pad), high + pad];
    }

    dotLogRange() {
      const [low, high] = this.logRange();
      return [low / 1.2, high * 1.2];
    }

    lane(u, row, order, count) {
      const height = Math.abs(u.valToPos(1, "x", true) - u.valToPos(0, "x", true)) || u.bbox.height;
      const step = Math.min(height / (count + 0.9), 13 * devicePixelRatio);
      return u.valToPos(row, "x", true) + (order - (count - 1) / 2) * step;
    }

    drawRows(u) {
      const { ctx, bbox } = u;
      const dpr = devicePixelRatio;
      ctx.save();
      ctx.lineWidth = 1;
      ctx.strokeStyle = colour("grid");
      ctx.beginPath();
      for (let row = 0; row + 1 < this.view.x.length; row++) {
        const y = Math.round(u.valToPos(row + 0.5, "x", true)) + 0.5;
        ctx.moveTo(0, y);
        ctx.lineTo(bbox.left + bbox.width, y);
      }
      ctx.stroke();
      const shown = this.shownSeries();
      ctx.fillStyle = colour("band");
      shown.forEach(({ series }, order) => series.floor.forEach((floor, row) => {
        if (floor === null || series.y[this.mode][row] === null) return;
        const left = u.valToPos(1 - floor, "y", true), right = u.valToPos(1 + floor, "y", true);
        ctx.fillRect(left, this.lane(u, row, order, shown.length) - 3.5 * dpr, Math.max(right - left, 1), 7 * dpr);
      }));
      if (this.plot.modes[this.mode].name === "ratio") {
        const one = Math.round(u.valToPos(1, "y", true)) + 0.5;
        ctx.strokeStyle = colour("soft");
        ctx.lineWidth = dpr;
        ctx.beginPath();
        ctx.moveTo(one, bbox.top);
        ctx.lineTo(one, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.restore();
    }

    drawDots(u) {
      const { ctx } = u;
      const dpr = devicePixelRatio;
      const shown = this.shownSeries();
      this.spots = [];
      ctx.save();
      shown.forEach(({ series, index }, order) => this.view.x.forEach((_, row) => {
        const value = series.y[this.mode][row];
        if (value === null) return;
        const [x, y] = [u.valToPos(value, "y", true), this.lane(u, row, order, shown.length)];
        const look = this.looks[index];
        ctx.strokeStyle = colour(look.stroke);
        ctx.lineWidth = 1.5 * dpr;
        ctx.beginPath();
        ctx.moveTo(u.valToPos(series.low[this.mode][row], "y", true), y);
        ctx.lineTo(u.valToPos(series.high[this.mode][row], "y", true), y);
        ctx.stroke();
        const none = series.remark[row]?.startsWith("no difference");
        ctx.fillStyle = none ? colour("paper") : colour(look.stroke);
        ctx.beginPath();
        MARKS[look.mark](ctx, x, y, 3.6 * dpr);
        ctx.fill();
        ctx.stroke();
        this.spots.push({ x: x / dpr, y: y / dpr, series, look, row, value });
      }));
      this.spots.sort((a, b) => a.row - b.row);
      ctx.restore();
    }

    hoverDots(event) {
      const box = this.chart.root.querySelector("canvas").getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      // A row is found before a place in it, as a reader does.
      const away = (spot) => Math.hypot((spot.x - x) / 3, spot.y - y);
      const found = this.spots.reduce((best, spot) => (!best || away(spot) < away(best) ? spot : best), null);
      if (found && away(found) < 40) this.pointAt(found);
      else this.leave();
    }

    pointAt(spot) {
      this.at = this.spots.indexOf(spot);
      const mode = this.plot.modes[this.mode].name;
      const { series, row, look } = spot;
      const [low, high, floor] = [series.low[this.mode][row], series.high[this.mode][row], series.floor[row]];
      const range = `${show[mode](low)} to ${show[mode](high)}`;
      this.fillTip(`${this.view.labels[row]}, ${series.name}`, [
        [swatch(look, "dots"), mode, show[mode](spot.value), series.remark[row] ?? ""],
        ["", mode === "ratio" ? "95%" : "quartiles", range, ""],
        ...(floor === null ? [] : [["", "floor", `±${(floor * 100).toFixed(1)}%`, ""]]),
      ]);
      this.placeTip(spot.x, spot.y + 8);
      this.said = `${this.view.labels[row]}, ${series.name}: ${show[mode](spot.value)}, ${range}${series.remark[row] ? `, ${series.remark[row]}` : ""}${floor === null ? "" : `, noise floor ${(floor * 100).toFixed(1)}%`}`;
    }

    // ---- Reading values ----------------------------------------------------------------------

    fillTip(heading, rows) {
      const table = make("table", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, index) => make("td", index === 2 ? { class: "n" } : {}, cell)))));
      this.tip.replaceChildren(make("b", {}, heading), table);
    }

    placeTip(x, y) {
      this.tip.hidden = false;
      const width = this.tip.offsetWidth;
      const right = x + 14 + width <= this.holder.clientWidth;
      const left = right ? x + 14 : x - 14 - width;
      this.tip.style.left = `${Math.max(0, Math.min(left, this.holder.clientWidth - width))}px`;
      this.tip.style.top = `${y}px`;
    }

    leave() {
      this.tip.hidden = true;
      this.at = null;
      if (!this.dots) this.chart.setCursor({ left: -10, top: -10 });
    }

    key(event) {
      const last = (this.dots ? this.spots.length : this.view.x.length) - 1;
      const from = this.at;
      const target = {
        ArrowRight: from === null ? 0 : Math.min(last, from + 1),
        ArrowLeft: from === null ? last : Math.max(0, from - 1),
        Home: 0,
        End: last,
      };
      if (this.dots) {
        target.ArrowDown = target.ArrowRight;
        target.ArrowUp = target.ArrowLeft;
      }
      if (event.key === "Escape") this.leave();
      if (!(event.key in target) || event.ctrlKey || event.metaKey || event.altKey || last < 0) return;
      event.preventDefault();
      const next = target[event.key];
      if (this.dots) this.pointAt(this.spots[next]);
      else this.chart.setCursor({ left: this.chart.valToPos(this.view.x[next], "x"), top: 10 });
      this.live.textContent = this.said;
    }
  }

  // ---- The page --------------------------------------------------------------------------------

  const described = read("plots");
  const plots = [...document.querySelectorAll(".plot")].map((holder) => new Plot(holder, described[holder.dataset.figure]));
  const redrawAll = () => plots.forEach((plot) => plot.draw());

  const root = document.documentElement;
  const themeButton = document.getElementById("theme");
  const THEMES = ["system", "dark", "light"];
  const stored = () => { try { return localStorage.getItem("haul-theme"); } catch { return null; } };
  const setTheme = (theme) => {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    themeButton.textContent = `Theme: ${theme}`;
    try { localStorage.setItem("haul-theme", theme); } catch { /* a file:// page may have no storage */ }
    redrawAll();
  };
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    const current = root.dataset.theme ?? "system";
    setTheme(THEMES[(THEMES.indexOf(current) + 1) % THEMES.length]);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  const asked = location.hash.slice(1);
  const initial = [asked, stored()].find((theme) => THEMES.includes(theme));
  if (initial && initial !== "system") setTheme(initial);

  // Paper is light whatever the screen is.
  let before;
  addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; redrawAll(); });
  addEventListener("afterprint", () => { if (before) root.dataset.theme = before; else delete root.dataset.theme; redrawAll(); });

  const machine = document.getElementById("machine");
  const chooseMachine = () => {
    for (const section of document.querySelectorAll("main > .machine")) section.hidden = machine.value !== "" && section.id !== machine.value;
  };
  machine?.addEventListener("change", chooseMachine);

  document.getElementById("save-records").addEventListener("click", () => {
    // Line by line as written: parsing would round what a JavaScript number cannot hold.
    const text = `${document.getElementById("records").textContent.slice(1, -1).replaceAll(",\n", "\n")}\n`;
    const url = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
    make("a", { href: url, download: "records.jsonl" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });

  // Tables sort by any column: a click ascending, another descending.
  for (const table of document.querySelectorAll(".scroll table")) {
    const headers = [...table.tHead.rows[0].cells];
    headers.forEach((header, column) => {
      const button = make("button", { type: "button" }, ...header.childNodes);
      header.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = header.getAttribute("aria-sort") === "ascending";
        headers.forEach((other) => other.removeAttribute("aria-sort"));
        header.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
        const order = (a, b) => {
          const [x, y] = [value(a), value(b)];
          const numbers = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
          return (numbers ? x - y : x.localeCompare(y, "en", { numeric: true })) * (down ? -1 : 1);
        };
        table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order));
      });
    });
  }
})();
