// A row for each case, a dot and its interval for each series: uPlot with its axes exchanged, and dots
// drawn by us.

class DotPlot extends Plot {
  get hasRows() { return true; }

  get count() { return this.spots?.length ?? 0; }

  goTo(index) { this.pointAt(this.spots[index]); }

  draw() {
    super.draw();
    this.chart.over.addEventListener("pointermove", (event) => this.hover(event));
    this.chart.over.addEventListener("pointerleave", () => this.leave());
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
    const [low, high] = mode.log ? this.rowLogRange() : this.rowRange();
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

  // A floor is a share of a ratio: on an axis of anything else it has no place.
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
      const none = series.remark[this.mode][row]?.startsWith("no difference");
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

  hover(event) {
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
    const [low, high, floor] = [series.low[this.mode][row], series.high[this.mode][row], series.floor[this.mode][row]];
    const range = `${show[mode](low)} to ${show[mode](high)}`;
    this.fillTip(`${this.view.labels[row]}, ${series.name}`, [
      [swatch(look, "dots"), mode, show[mode](spot.value), series.remark[this.mode][row] ?? ""],
      ["", mode === "ratio" ? "95%" : "quartiles", range, ""],
      ...(floor === null ? [] : [["", "floor", `±${(floor * 100).toFixed(1)}%`, ""]]),
    ]);
    this.placeTip(spot.x, spot.y + 8);
    this.said = `${this.view.labels[row]}, ${series.name}: ${show[mode](spot.value)}, ${range}${series.remark[this.mode][row] ? `, ${series.remark[this.mode][row]}` : ""}${floor === null ? "" : `, noise floor ${(floor * 100).toFixed(1)}%`}`;
  }
}
