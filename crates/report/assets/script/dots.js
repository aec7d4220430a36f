// One row per case, with a dot and its interval for each series: uPlot with exchanged axes, and dots
// drawn here.

class DotPlot extends Plot {
  get keys() { return "↑ ↓ move · Home End · Esc"; }

  get hasRows() { return true; }

  get count() { return this.view.x.length; }

  draw() {
    super.draw();
    this.chart.over.addEventListener("pointermove", (event) => this.hover(event));
    this.chart.over.addEventListener("pointerleave", () => this.leave());
    this.bar = this.chart.over.appendChild(make("div", { class: "row", hidden: "" }));
  }

  shownSeries() {
    return this.view.series.map((series, index) => ({ series, index })).filter(({ series }) => this.isShown(series) && this.has(series));
  }

  options() {
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
    const [low, high] = this.isLog ? this.rowLogRange() : this.rowRange();
    const axis = { stroke: colour("soft"), ticks: { show: false }, labelFont: FONT(11.5), labelSize: 18, labelGap: 2 };
    return {
      width: this.width,
      height: rows * Math.max(28, lanes * 10 + 14) + 62,
      legend: { show: false },
      padding: [6, 16, 0, 0],
      cursor: { show: false },
      scales: {
        x: { time: false, ori: 1, dir: -1, range: [-0.5, rows - 0.5] },
        y: this.isLog ? { ori: 0, distr: 3, log: 10, range: [low, high] } : { ori: 0, range: [low, high] },
      },
      axes: [
        {
          ...axis, side: 3, size: gutter, gap: 8, font: FONT(12), stroke: colour("ink"), grid: { show: false },
          splits: () => this.view.x, values: () => this.view.labels.map(fit),
        },
        {
          ...axis, side: 2, size: 28, gap: 5, font: FONT(11.5), label: mode.title, grid: { stroke: colour("grid"), width: 1 },
          space: 56,
          ...(this.isLog ? { splits: () => this.logSplits(), filter: ALL, values: (u, splits) => splits.map(axisLabel(mode)) }
            : { values: (u, splits) => splits.map(plain) }),
        },
      ],
      series: [{}, ...this.view.series.map(() => ({ paths: () => null, points: { show: false } }))],
      hooks: { drawAxes: [(u) => this.drawRows(u)], draw: [(u) => this.drawDots(u)] },
    };
  }

  // A floor is a share of a ratio, so that only a ratio's axis shows it.
  floors(series) { return this.plot.modes[this.mode].name === "ratio" ? series.floor[this.mode] : []; }

  rowRange() {
    const mode = this.mode;
    const values = this.shownSeries().flatMap(({ series }) =>
      [...series.y[mode], ...series.low[mode], ...series.high[mode], ...this.floors(series).flatMap((floor) => (floor === null ? [] : [1 - floor, 1 + floor]))]).filter((v) => v !== null);
    const low = Math.min(...values, 0.95), high = Math.max(...values, 1.05);
    const pad = (high - low) * 0.03;
    return [Math.max(0, low - pad), high + pad];
  }

  rowLogRange() {
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
    shown.forEach(({ series }, order) => this.floors(series).forEach((floor, row) => {
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
      const none = series.remark[this.mode][row]?.startsWith("no difference");
      ctx.fillStyle = none ? colour("paper") : colour(look.stroke);
      ctx.beginPath();
      MARKS[look.mark](ctx, x, y, 3.6 * dpr);
      ctx.fill();
      ctx.stroke();
    }));
    ctx.restore();
  }

  hover(event) {
    const y = event.clientY - this.chart.over.getBoundingClientRect().top;
    const row = Math.round(this.chart.posToVal(y, "x"));
    if (row >= 0 && row < this.count) this.goTo(row);
  }

  goTo(row) {
    this.at = row;
    const mode = this.plot.modes[this.mode];
    const rows = this.shownSeries().filter(({ series }) => series.y[this.mode][row] !== null).map(({ series }) => {
      const [low, high, floor] = [series.low, series.high, series.floor].map((of) => of[this.mode][row]);
      const range = `${shown(mode, low)} to ${shown(mode, high)}`;
      const remark = [series.remark[this.mode][row], mode.name === "ratio" ? `95%: ${range}` : `quartiles ${range}`, floor === null ? null : `floor ±${(floor * 100).toFixed(1)}%`];
      return { series, value: shown(mode, series.y[this.mode][row]), remark: remark.filter(Boolean).join(" · ") };
    });
    this.readout({ heading: this.view.labels[row], rows });
    const [top, bottom] = [row - 0.5, row + 0.5].map((edge) => this.chart.valToPos(edge, "x"));
    Object.assign(this.bar.style, { top: `${top}px`, height: `${bottom - top}px` });
    this.bar.hidden = false;
  }

  leave() {
    super.leave();
    this.bar.hidden = true;
  }
}
