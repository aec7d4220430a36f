// What all plots have: controls, legend, scale, tip, keyboard. A kind of plot adds `options` (uPlot's),
// `count` (how many values the keyboard reaches) and `goTo` (shows one of them and says it in `said`).

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
    this.chart = new uPlot(this.options(), this.data(), this.canvas);
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
    const key = this.plot.shape === "dots" && this.view.series.some((series) => series.remark.some((row) => row.some(Boolean)));
    this.legend.replaceChildren(...buttons, ...(key ? [make("small", {}, "filled: a difference · hollow: none beyond the noise")] : []));
  }

  // The scale

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

  // Reading values

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
    if (this.hasRows) {
      target.ArrowDown = target.ArrowRight;
      target.ArrowUp = target.ArrowLeft;
    }
    if (event.key === "Escape") this.leave();
    if (!(event.key in target) || event.ctrlKey || event.metaKey || event.altKey || last < 0) return;
    event.preventDefault();
    this.goTo(target[event.key]);
    this.live.textContent = this.said;
  }
}
