// Round values from the first to the last, at most `most` of them.
function roundSplits(first, last, most) {
  const least = (last - first) / most;
  const decade = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((by) => by * decade).find((step) => step >= least);
  const splits = [];
  for (let value = Math.ceil(first / step) * step; value <= last; value += step) splits.push(value);
  return splits;
}

// Lines over sizes or counts. Dragging over a part of the axis, or + and -, zooms in to that part; the
// cursors of all plots with the same axis move together.

const linePlots = [];

class LinePlot extends Plot {
  get keys() { return "← → move · + − zoom · Esc"; }

  // The positions that the keyboard reaches: the visible ones.
  get places() { return this.view.x.flatMap((_, place) => (this.isInSight(place) ? [place] : [])); }

  get count() { return this.places.length; }

  goTo(index) { this.standAt(this.places[index]); }

  standAt(place) { this.chart.setCursor({ left: this.chart.valToPos(this.view.x[place], "x"), top: 10 }); }

  // By screen distance: on a logarithmic axis the nearest value is not the nearest position.
  placeNear(u, left) {
    const away = (at) => Math.abs(at - left);
    return this.places.map((place) => u.valToPos(this.view.x[place], "x")).reduce((best, at) => (away(at) < away(best) ? at : best));
  }

  leave() {
    super.leave();
    this.chart.setCursor({ left: -10, top: -10 });
  }

  // Follows another plot's cursor on the same axis; null if that cursor has left.
  follow(x) {
    this.isFollowing = true;
    const [first, last] = [this.view.x[0], this.view.x.at(-1)];
    if (x === null || x < first || x > last) this.leave();
    else {
      const away = (place) => Math.abs(this.view.x[place] - x);
      this.standAt(this.places.reduce((best, place) => (away(place) < away(best) ? place : best), this.places[0]));
    }
    this.isFollowing = false;
  }

  lead(x) {
    if (this.isFollowing) return;
    for (const other of linePlots) {
      if (other !== this && other.plot.x_title === this.plot.x_title && other.holder.clientWidth > 0) other.follow(x);
    }
  }

  draw() {
    super.draw();
    this.chart.over.addEventListener("dblclick", () => this.zoom && this.zoomTo(null));
  }

  // Zooms to the positions nearest to both ends, if the part contains at least two.
  zoomBetween(low, high) {
    const inside = this.view.x.filter((x) => x >= low && x <= high);
    if (inside.length >= 2) this.zoomTo([inside[0], inside.at(-1)]);
  }

  zoomKey(event) {
    if (!["+", "=", "-"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) return false;
    event.preventDefault();
    const places = this.places;
    const middle = places[this.at ?? Math.floor(places.length / 2)];
    const half = event.key === "-" ? places.length : Math.floor(places.length / 4);
    const [low, high] = [Math.max(0, middle - half), Math.min(this.view.x.length - 1, middle + half)];
    if (low === 0 && high === this.view.x.length - 1) this.zoomTo(null);
    else this.zoomBetween(this.view.x[low], this.view.x[high]);
    this.standAt(middle);
    return true;
  }

  options() {
    const sizes = this.plot.shape === "sizes";
    const mode = this.plot.modes[this.mode];
    const x = this.view.x;
    const [first, last] = this.zoom ?? [x[0], x.at(-1)];
    const narrow = this.width < 560;
    const axis = { stroke: colour("soft"), font: FONT(11.5), labelFont: FONT(11.5), labelSize: 18, labelGap: 2, ticks: { show: false } };
    return {
      width: this.width,
      height: narrow ? 300 : 400,
      legend: { show: false },
      padding: [18, 14, 0, narrow ? 0 : 4],
      cursor: {
        y: false, bind: { dblclick: () => null }, drag: { x: true, y: false, setScale: false, dist: 6 },
        move: (u, left, top) => [left < 0 ? left : this.placeNear(u, left), top],
        points: { size: 7, fill: (u, i) => colour(this.looks[i - 1].stroke), width: 0 },
      },
      scales: {
        x: sizes
          ? { time: false, distr: 3, log: 2, range: [first / (first === last ? 2 : 1.12), last * (first === last ? 2 : 1.12)] }
          : { time: false, range: first === last ? [first - 1, last + 1] : [first - (last - first) * 0.03, last + (last - first) * 0.03] },
        y: this.isLog ? { distr: 3, log: 10, range: () => this.logRange() } : { range: () => this.range() },
      },
      axes: [
        {
          ...axis, size: 30, label: this.plot.x_title, gap: 6,
          grid: { stroke: colour("grid"), width: 1 },
          splits: () => this.xSplits(), filter: ALL,
          values: (u, splits) => splits.map((v) => (sizes ? bytes(v) : many(v))),
        },
        {
          ...axis, size: narrow ? 46 : 52, label: mode.title, gap: 5,
          grid: { stroke: colour("grid"), width: 1 },
          ...(this.isLog ? { splits: () => this.logSplits(), filter: ALL, values: (u, splits) => splits.map(axisLabel(mode)) }
            : { values: (u, splits) => splits.map(plain) }),
        },
      ],
      series: [{}, ...this.view.series.map((series, index) => this.lineSeries(series, this.looks[index]))],
      hooks: {
        drawAxes: [(u) => this.drawGuides(u), (u) => this.drawBand(u)],
        draw: [(u) => this.drawIntervals(u)],
        setCursor: [(u) => this.hover(u)],
        setSelect: [(u) => {
          const { left, width } = u.select;
          if (width < 6) return;
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          this.zoomBetween(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
        }],
      },
    };
  }

  lineSeries(series, look) {
    const stroke = colour(look.stroke);
    return {
      label: series.name, show: this.isShown(series), spanGaps: true, stroke, width: look.width, dash: look.dash,
      points: { show: look.mark >= 0 && this.view.x.length <= 40, size: look.width > 1.5 ? 5 : 4, fill: stroke, width: 0 },
    };
  }

  xSplits() {
    const x = this.view.x.filter((_, place) => this.isInSight(place));
    if (this.plot.shape !== "sizes") {
      const most = this.width / 52;
      return x.length <= most ? x : roundSplits(x[0], x.at(-1), most);
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
    const floors = this.view.x.map((x, place) => Math.max(...this.view.series.map((series) => series.floor[this.mode][place] ?? 0)));
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

  hover(u) {
    const place = u.cursor.idx;
    if (place === null || place === undefined || u.cursor.left < 0) {
      this.readout(null);
      this.lead(null);
      return;
    }
    this.at = this.places.indexOf(place);
    const mode = this.plot.modes[this.mode];
    const rows = this.view.series
      .filter((series) => this.isShown(series) && series.y[this.mode][place] !== null)
      .map((series) => ({ series, value: shown(mode, series.y[this.mode][place]), remark: series.remark[this.mode][place] ?? "" }));
    this.readout({ heading: this.view.labels[place], rows });
    this.lead(this.view.x[place]);
  }
}
