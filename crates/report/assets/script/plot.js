// The base of all plots: controls, scale, keyboard, and a legend that shows the values under the cursor,
// so that nothing covers the plot. A kind of plot adds `options` (uPlot's), `count` (the number of
// positions that the keyboard reaches) and `goTo` (shows one of them).

// The axis is logarithmic if the largest value is at least this many times the smallest.
const SPAN_LOG = 100;

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

  prepare() {
    const { holder } = this;
    holder.replaceChildren();
    holder.tabIndex = 0;
    holder.setAttribute("role", "application");
    holder.setAttribute("aria-roledescription", "plot");
    holder.setAttribute("aria-label", `${this.title}. Arrow keys move through its values.`);
    this.canvas = holder.appendChild(make("div"));
    holder.append(make("span", { class: "hint", "aria-hidden": "true" }, this.keys));
    holder.addEventListener("keydown", (event) => this.key(event));
    holder.addEventListener("blur", () => this.leave());
  }

  // Controls: buttons for few values, a list for many.
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
        this.zoom = null;
        this.redraw();
      }));
    });
    if (this.zoom) {
      const whole = make("button", { type: "button", class: "whole" }, "whole range");
      whole.addEventListener("click", () => { this.zoomTo(null); this.holder.focus(); });
      rows.push(make("div", { class: "choice" }, whole));
    }
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

  // The view with the new value and most of the old ones, because not every combination was measured.
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
    this.width = Math.max(this.holder.clientWidth, 200);
    this.drawLegend();
    this.chart = new uPlot(this.options(), this.data(), this.canvas);
    if (this.command) this.command.textContent = this.view.rerun;
  }

  data() { return [this.view.x, ...this.view.series.map((series) => series.y[this.mode])]; }

  resize() {
    const width = Math.max(this.holder.clientWidth, 200);
    if (width === this.width || this.holder.clientWidth === 0) return;
    this.draw();
  }

  // The drawn series, each with space for its value; then the series that a click adds.
  drawLegend() {
    const [shown, more] = [[], []];
    this.cells = new Map();
    this.view.series.forEach((series, index) => {
      if (!this.has(series)) return;
      const name = series.kind === "modelled" && !series.name.includes("modelled") ? `${series.name} (modelled)` : series.name;
      const isShown = this.isShown(series);
      const button = make("button", { type: "button", "aria-pressed": String(isShown) }, swatch(this.looks[index], this.plot.shape), make("span", {}, name));
      button.addEventListener("click", () => {
        this.toggled.set(series.name, !isShown);
        this.draw();
        [...this.legend.querySelectorAll("button")].find((other) => other.textContent === name)?.focus();
      });
      if (!isShown) return more.push(button);
      const cells = { value: make("b", { class: "value" }), remark: make("small", { class: "remark" }) };
      this.cells.set(series, cells);
      shown.push(make("div", { class: "item" }, button, cells.value, cells.remark));
    });
    const remarks = this.view.series.some((series) => series.remark.some((row) => row.some(Boolean)));
    const key = this.plot.shape === "dots" && remarks;
    this.place = make("p", { class: "place" });
    this.legend.classList.toggle("remarked", remarks || this.plot.shape === "dots");
    this.legend.replaceChildren(
      this.place,
      make("div", { class: "items" }, ...shown),
      ...(more.length ? [make("div", { class: "more" }, make("span", {}, "add:"), ...more)] : []),
      ...(key ? [make("small", { class: "key" }, "filled: a difference · hollow: none beyond the noise")] : []),
    );
    this.readout(null);
  }

  // Shows the values at a position, series by series: { heading, rows: [{ series, value, remark }] }, or none.
  readout(found) {
    this.place.textContent = found?.heading ?? "Point at the plot, or use the arrow keys, to read values.";
    this.place.classList.toggle("idle", !found);
    for (const { value, remark } of this.cells.values()) value.textContent = remark.textContent = "";
    for (const { series, value, remark } of found?.rows ?? []) {
      const cells = this.cells.get(series);
      if (!cells) continue;
      cells.value.textContent = value;
      cells.remark.textContent = cells.remark.title = remark;
    }
    if (!found) return;
    const words = ({ series, value, remark }) => `${series.name} ${value}${remark ? `, ${remark}` : ""}`;
    this.said = `${found.heading}: ${found.rows.map(words).join("; ")}`;
  }

  // The scale

  shownValues() {
    const found = this.view.series.filter((series) => this.isShown(series));
    // The main series determine the scale of a ratio; a distant kernel may leave the frame.
    const main = this.plot.modes[this.mode].name === "ratio" ? found.filter((series) => series.role !== "other") : found;
    return (main.some((series) => this.has(series)) ? main : found);
  }

  // The values of a series in the visible part of the axis.
  inSight(values) { return this.zoom ? values.filter((_, place) => this.isInSight(place)) : values; }

  isInSight(place) { return !this.zoom || (this.view.x[place] >= this.zoom[0] && this.view.x[place] <= this.zoom[1]); }

  // By the initial series, so that the axis does not change when a series is added.
  get isLog() {
    const mode = this.plot.modes[this.mode];
    if (mode.log || mode.name === "ratio") return mode.log;
    const first = this.view.series.filter((series) => series.shown);
    const values = first.flatMap((series) => this.inSight(series.y[this.mode])).filter((v) => v !== null);
    return values.length > 0 && Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) >= SPAN_LOG;
  }

  range() {
    const mode = this.mode;
    const isRatio = this.plot.modes[mode].name === "ratio";
    const values = this.shownValues().flatMap((series) => [series.y[mode], ...(isRatio ? [series.low[mode], series.high[mode]] : [])])
      .flatMap((row) => this.inSight(row)).filter((v) => v !== null);
    if (!isRatio) return [0, Math.max(...values, 0) * 1.06 || 1];
    const low = Math.min(...values, 0.94), high = Math.max(...values, 1.06);
    const pad = (high - low) * 0.05;
    return [Math.max(0, low - pad), high + pad];
  }

  logRange() {
    const values = this.shownValues().flatMap((series) => this.inSight(series.y[this.mode])).filter((v) => v > 0);
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

  zoomTo(range) {
    this.zoom = range;
    this.redraw();
  }

  leave() {
    this.at = null;
    this.readout(null);
  }

  key(event) {
    const last = this.count - 1;
    const from = this.at;
    const target = {
      ArrowRight: from === null ? 0 : Math.min(last, from + 1),
      ArrowLeft: from === null ? last : Math.max(0, from - 1),
      Home: 0,
      End: last,
    };
    if (this.zoomKey?.(event)) return;
    if (this.hasRows) {
      target.ArrowDown = target.ArrowRight;
      target.ArrowUp = target.ArrowLeft;
    }
    if (event.key === "Escape") {
      this.leave();
      if (this.zoom) this.zoomTo(null);
    }
    if (!(event.key in target) || event.ctrlKey || event.metaKey || event.altKey || last < 0) return;
    event.preventDefault();
    this.at = target[event.key];
    this.goTo(this.at);
    this.live.textContent = this.said;
  }
}
