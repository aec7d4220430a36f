// A heap's map: reads out slices by pointer and by keyboard, and selects the colours.

class HeapMap {
  constructor(holder) {
    this.holder = holder;
    this.tags = JSON.parse(holder.dataset.tags);
    this.live = holder.querySelector("output");
    this.pages = [...holder.querySelectorAll(".page svg")];
    this.slices = this.pages.map((page) => HeapMap.parse(page.dataset.slices));
    // The line above the pages replaces the browser's tooltip, which would cover pages.
    this.pages.forEach((page) => page.querySelector("title")?.remove());
    this.at = null;
    this.grid = holder.querySelector(".pages");
    this.place = make("p", { class: "place", "aria-hidden": "true" });
    this.grid.before(this.place);
    this.grid.tabIndex = 0;
    this.grid.setAttribute("role", "application");
    this.grid.setAttribute("aria-roledescription", "map");
    this.grid.addEventListener("pointermove", (event) => this.hover(event));
    this.grid.addEventListener("pointerdown", (event) => this.hover(event));
    this.grid.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.leave());
    this.grid.addEventListener("keydown", (event) => this.key(event));
    this.grid.addEventListener("blur", () => this.leave());
    this.drawChoice();
    this.leave();
  }

  // "2*4096:8+4+4@1 = -" as one text a slice, with what a large block's other slices belong to.
  static parse(text) {
    const slices = [];
    let block = "";
    for (const word of text.split(" ")) {
      const [, times, what] = word.match(/^(?:(\d+)\*)?(.*)$/);
      if (what.startsWith("L")) block = what;
      for (let n = Math.min(Number(times ?? 1), 32 - slices.length); n > 0; n--) slices.push(what === "=" ? block : what);
    }
    return slices;
  }

  drawChoice() {
    const buttons = ["tag", "class"].map((by) => {
      const button = make("button", { type: "button", "aria-pressed": String(this.holder.dataset.by === by) }, by);
      button.addEventListener("click", () => {
        this.holder.dataset.by = by;
        buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      });
      return button;
    });
    this.holder.querySelector(".choices").replaceChildren(
      make("fieldset", { class: "choice" }, make("span", {}, "colour by"), make("div", {}, ...buttons)));
  }

  describe(slice) {
    const span = slice.match(/^(\d+):(\d+)\+(\d+)\+(\d+)@(\d+)$/);
    if (span) {
      const [size, live, cached, free] = span.slice(1).map(Number);
      return [`span of ${bytes(size)}`, `${live} live (${bytes(live * size)}), ${cached} held ready, ${free} free`, this.tag(span[5])];
    }
    const large = slice.match(/^L(\d+)@(\d+)$/);
    if (large) return [`large block of ${bytes(Number(large[1]))}`, this.tag(large[2])];
    return [{ "-": "free", "~": "being built or taken apart", "!": "damaged", "": "a large block of the page before" }[slice] ?? slice];
  }

  tag(number) { return `tag ${this.tags[number] ?? number}`; }

  hover(event) {
    const page = this.pages.indexOf(event.target.closest?.(".page svg"));
    if (page < 0) return this.leave();
    const box = this.pages[page].getBoundingClientRect();
    this.goTo(page, Math.floor((32 * (event.clientX - box.left)) / box.width), false);
  }

  goTo(page, slice, aloud) {
    this.at = [page, Math.max(0, Math.min(31, slice))];
    const state = this.pages[page].classList.contains("absent");
    const [what, ...more] = state ? ["no memory"] : this.describe(this.slices[page][this.at[1]] ?? "-");
    const place = `page ${this.pages[page].dataset.page}, slice ${this.at[1]}`;
    const said = [place, what, ...more].join(", ");
    this.place.textContent = said;
    this.place.classList.remove("idle");
    if (aloud) this.live.textContent = said;
  }

  key(event) {
    const [page, slice] = this.at ?? [0, -1];
    const last = this.pages.length - 1;
    const move = {
      ArrowRight: [page + (slice === 31 ? 1 : 0), (slice + 1) % 32],
      ArrowLeft: [page - (slice <= 0 ? 1 : 0), (slice + 31) % 32],
      ArrowDown: [page + 1, Math.max(0, slice)], ArrowUp: [page - 1, Math.max(0, slice)],
      Home: [0, 0], End: [last, 31],
    }[event.key];
    if (event.key === "Escape") this.leave();
    if (!move || this.pages.length === 0) return;
    event.preventDefault();
    this.goTo(Math.max(0, Math.min(last, move[0])), move[1], true);
  }

  leave() {
    this.at = null;
    this.place.textContent = "Point at a slice, or use the arrow keys, to read its contents.";
    this.place.classList.add("idle");
  }
}
