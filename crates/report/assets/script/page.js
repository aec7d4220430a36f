// The page around the plots: theme, machines, records to save, tables to sort.

const described = read("plots");
const plots = [...document.querySelectorAll(".plot")].map((holder) => {
  const plot = described[holder.dataset.figure];
  return plot.shape === "dots" ? new DotPlot(holder, plot) : new LinePlot(holder, plot);
});
linePlots.push(...plots.filter((plot) => plot instanceof LinePlot));
document.querySelectorAll(".map").forEach((holder) => new HeapMap(holder));
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

// Printing always uses the light theme.
let before;
addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; redrawAll(); });
addEventListener("afterprint", () => { if (before) root.dataset.theme = before; else delete root.dataset.theme; redrawAll(); });

const machine = document.getElementById("machine");
const chooseMachine = () => {
  for (const section of document.querySelectorAll("main > .machine")) section.hidden = machine.value !== "" && section.id !== machine.value;
};
machine?.addEventListener("change", chooseMachine);

document.getElementById("downloads").hidden = false;
document.getElementById("save-records").addEventListener("click", () => {
  // The text is not parsed, because JavaScript would round large numbers.
  const text = `${document.getElementById("records").textContent.slice(1, -1).replaceAll(",\n", "\n")}\n`;
  const url = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  make("a", { href: url, download: "records.jsonl" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
});

// Tables sort by any column: the first click ascending, the next descending.
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

// The table of contents marks the visible figure.
const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    const link = links.get(target.id);
    link.closest(".contents").querySelector("[aria-current]")?.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
    const bar = link.closest(".contents");
    const [left, right] = [link.offsetLeft - bar.offsetLeft, link.offsetLeft - bar.offsetLeft + link.offsetWidth];
    if (left < bar.scrollLeft || right > bar.scrollLeft + bar.clientWidth) bar.scrollLeft = left - 16;
  }
}, { rootMargin: "-25% 0px -65% 0px" });
document.querySelectorAll(".figure").forEach((figure) => { if (links.has(figure.id)) watcher.observe(figure); });

// A table shows its most important columns; a click shows all of them.
for (const holder of document.querySelectorAll(".scroll:has(th.x)")) {
  const table = holder.querySelector("table");
  const button = make("button", { type: "button", class: "columns" });
  const set = (few) => {
    table.classList.toggle("few", few);
    button.textContent = few ? `All ${table.tHead.rows[0].cells.length} columns` : "Fewer columns";
    button.setAttribute("aria-pressed", String(!few));
  };
  button.addEventListener("click", () => set(!table.classList.contains("few")));
  set(true);
  holder.before(button);
}

// Each command gets a button that copies it.
for (const code of document.querySelectorAll(".verdicts .do code, .missing code, .rerun code, .findings .action code")) {
  const button = make("button", { type: "button", class: "copy", title: "Copy" }, "copy");
  button.setAttribute("aria-label", `Copy ${code.textContent}`);
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(code.textContent); } catch { getSelection().selectAllChildren(code); return; }
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  if (code.textContent.includes(" ")) code.after(button);
}
