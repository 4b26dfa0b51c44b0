/* Draws the figures of the page as they come into view, in the theme and width of the reader. */
(() => {
  const loaded = {};
  const require = (name) => {
    if (!loaded[name]) {
      loaded[name] = { exports: {} };
      modules[name](loaded[name], loaded[name].exports, require);
    }
    return loaded[name].exports;
  };
  const root = document.documentElement;
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const views = new Map(); /* chart element -> its view */
  let drawing = 0;
  root.dataset.errors = "";
  addEventListener("error", (event) => fail(document.querySelector("main"), event.message));

  function fail(element, message) {
    root.dataset.errors += message + "\n";
    const note = document.createElement("p");
    note.textContent = "This chart could not be drawn: " + message;
    element.append(note);
  }

  /* The charts name ranges and colours; here is what they are: of the page, in its reader's theme, or
     for paper, with letters of eight points. */
  function theme(paper) {
    const night = dark.matches && !paper;
    const sheet = document.body.appendChild(document.createElement("div"));
    sheet.className = paper ? "paper" : "";
    const style = getComputedStyle(sheet);
    const of = (name) => style.getPropertyValue("--" + name).trim();
    const font = paper ? "Helvetica, Arial, sans-serif" : getComputedStyle(document.body).fontFamily;
    const size = paper ? 32 / 3 : 12; /* pixels, of which an inch has 96 and a point 4/3 */
    const category = night
      ? ["#56b4e9", "#e69f00", "#3fc495", "#f0e442", "#e58cc0", "#ff8552", "#9aa7ff", "#b8bec6"]
      : ["#0072b2", "#d98200", "#009e73", "#8a6d00", "#b8528c", "#d55e00", "#4b56c0", "#5f6770"];
    const heat = night
      ? ["#1f2630", "#23466b", "#2f74a8", "#56b4e9", "#c9ecff"]
      : ["#eef4fa", "#b9d6ec", "#6aaedb", "#2472ab", "#0b335c"];
    const ramp = night
      ? ["#8f7be8", "#3f9fd0", "#4fd08b", "#f5e663"]
      : ["#440154", "#31688e", "#1f9e77", "#c9a800"];
    const letters = {
      labelFont: font, titleFont: font, labelFontSize: size, titleFontSize: size, titleFontWeight: paper ? 400 : 500,
    };
    const look = {
      colours: { accent: of("accent"), text: of("text"), muted: of("muted"), change: of("warn-line") },
      config: {
        background: null,
        text: { font, fontSize: size - 1 },
        axis: {
          ...letters, labelColor: of("muted"), titleColor: of("text"), titlePadding: 8, labelPadding: 5,
          domainColor: of("line"), gridColor: of("line"), tickColor: of("line"),
        },
        legend: {
          ...letters, labelColor: of("text"), titleColor: of("text"), symbolStrokeColor: of("text"),
          symbolStrokeWidth: 0, rowPadding: 4, columnPadding: 14, symbolDirection: "horizontal",
        },
        range: {
          category, heatmap: heat, ramp, family: report.families.map((name, i) => of("family-" + i)),
          diverging: night ? ["#56b4e9", "#101317", "#ff9f40"] : ["#0067a5", "#ffffff", "#c94f00"],
        },
      },
    };
    sheet.remove();
    return look;
  }

  /* Columns once and rows as arrays, as they travel, become objects. */
  const rows = (table) =>
    table.rows.map((row) => Object.fromEntries(table.columns.map((name, i) => [name, row[i]])));

  /* How many entries of a legend, names of series or kinds of work, have room side by side. */
  function columnsOf(table, width, { labelFont, labelFontSize }) {
    const pen = document.createElement("canvas").getContext("2d");
    const of = (name) => [...new Set(table.rows.map((row) => row[table.columns.indexOf(name)]))];
    const names = table.columns.includes("family") ? of("family").sort().map((i) => report.families[i]) : of("label");
    pen.font = labelFontSize + "px " + labelFont;
    const widths = names.map((name) => Math.min(pen.measureText(name).width, 220, width / 2) + 36);
    const needs = (columns) => widths.slice(0, columns)
      .reduce((sum, _, c) => sum + Math.max(...widths.filter((_, i) => i % columns === c)), 0);
    let columns = Math.max(1, names.length);
    while (columns > 1 && needs(columns) > width - 44) columns -= 1;
    return columns;
  }

  /* A figure's chart with the data of one choice, so many pixels wide. */
  function specification(figure, choice, width, paper) {
    const { colours, config } = theme(paper);
    const spec = structuredClone(report.charts[figure.chart]);
    const fixed = {
      colours, families: report.families, whole: width,
      step: paper ? 16 : 26, /* from bar to bar */
      dashes: paper /* lines that lie on each other, and printers without colours */
        ? [[], [6, 2], [2, 2], [8, 2, 2, 2], [4, 4], [10, 3], [1, 2], [6, 2, 2, 2, 2, 2], [12, 2], [3, 1], [1, 4], [8, 6]]
        : [[], [], [], [], [], [], [], [], [5, 3], [2, 2], [8, 3, 2, 3], [1, 3]],
      columns: columnsOf(choice.table, width, config.legend),
    };
    const signals = (spec.signals || []).filter((signal) => !(signal.name in choice.signals));
    for (const [name, value] of Object.entries({ ...fixed, ...choice.signals })) {
      signals.unshift({ name, value });
    }
    spec.signals = signals;
    /* Over labels as wide as the plot a legend begins where they do. */
    config.legend.layout = { top: { anchor: spec.axes.some((axis) => axis.labelLimit) ? "end" : "start" } };
    spec.width = width;
    if (paper && spec.height) spec.height = Math.min(spec.height, Math.round(0.55 * width));
    spec.padding = { left: 2, right: 8, top: 4, bottom: 6 };
    spec.data.find((data) => data.name === "table").values = rows(choice.table);
    return require("vega-parser").parse(spec, config, { ast: true });
  }

  const viewOf = (parsed, options) => new (require("vega-view").View)(
    parsed, { expr: require("vega-interpreter").expressionInterpreter, logLevel: 1, ...options });

  function draw(element) {
    const figure = report.figures[element.dataset.figure];
    const choice = figure.choices[element.dataset.choice || 0];
    drawing += 1;
    views.get(element)?.finalize();
    try {
      const view = viewOf(specification(figure, choice, element.clientWidth, false), { renderer: "svg", container: element });
      views.set(element, view);
      view.runAsync().catch((error) => fail(element, error.message)).then(done);
    } catch (error) {
      fail(element, error.message);
      done();
    }
  }

  function done() {
    drawing -= 1;
    if (drawing === 0) {
      root.dataset.drawn = views.size;
      root.dataset.milliseconds ??= Math.round(performance.now());
    }
  }

  const visible = (element) => element.offsetParent !== null;
  function drawVisible(again) {
    for (const element of document.querySelectorAll(".chart")) {
      if (visible(element) && (again || !views.has(element))) {
        draw(element);
      } else if (again && views.has(element)) { /* hidden: when it is shown, it is drawn anew */
        views.get(element).finalize();
        views.delete(element);
      }
    }
  }

  function select(label, names, chosen) {
    const line = document.createElement("label");
    const list = document.createElement("select");
    line.className = "choice";
    line.append(label, list);
    names.forEach((name, i) => list.append(new Option(name, i)));
    list.addEventListener("change", () => chosen(Number(list.value)));
    return line;
  }

  /* One of several sections, and one of several data of a figure. */
  for (const group of document.querySelectorAll("[data-choose]")) {
    const parts = [...group.children].filter((part) => part.dataset.label);
    const show = (index) => {
      parts.forEach((part, i) => { part.hidden = i !== index; });
      drawVisible(false);
    };
    if (parts.length > 1) {
      group.prepend(select(group.dataset.choose, parts.map((part) => part.dataset.label), show));
      parts.forEach((part, i) => { part.hidden = i !== 0; });
    }
  }
  for (const element of document.querySelectorAll(".chart")) {
    const figure = report.figures[element.dataset.figure];
    if (figure.choices.length > 1) {
      element.before(select(figure.choose, figure.choices.map((choice) => choice.label), (index) => {
        element.dataset.choice = index;
        draw(element);
      }));
    }
  }

  /* ---- for papers: every choice of every figure that is not aside, in the order of the page; others have the last
   * numbers ---- */

  const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 48);
  const aside = (element) => Number(Boolean(report.figures[element.dataset.figure].aside));
  const numbered = [...document.querySelectorAll(".chart")].sort((one, other) => aside(one) - aside(other));
  const sheets = numbered.flatMap((element, number) => {
    const figure = report.figures[element.dataset.figure];
    const around = element.closest("figure"), title = around.previousElementSibling.textContent;
    const where = [];
    for (let part = element; part; part = part.parentElement) {
      if (part.dataset.label) where.unshift(part.dataset.label.trim());
    }
    return figure.choices.map((choice, i) => ({
      element, figure, choice, title: [title, ...where, ...(figure.choices.length > 1 ? [choice.label] : [])].join("; "),
      name: [String(number + 1).padStart(2, "0"), slug(title), ...(figure.choices.length > 1 ? [i + 1] : [])].join("-"),
    }));
  });

  async function viewForPaper(sheet, inches) {
    const view = viewOf(specification(sheet.figure, sheet.choice, Math.floor(96 * inches), true), { renderer: "none" });
    await view.runAsync();
    return view;
  }

  /* With its size in inches, which is the same wherever it is put. */
  async function svgForPaper(sheet, inches) {
    const size = {};
    const svg = (await (await viewForPaper(sheet, inches)).toSVG()).replace(
      /width="([\d.]+)" height="([\d.]+)"/, (all, width, height) => {
        Object.assign(size, { width: width / 96, height: height / 96 });
        return `width="${size.width}in" height="${size.height}in"`;
      });
    return { svg, ...size };
  }

  async function save(sheet, kind) {
    const link = document.createElement("a");
    link.download = sheet.name + "." + kind;
    link.href = kind === "svg"
      ? "data:image/svg+xml," + encodeURIComponent((await svgForPaper(sheet, 7)).svg)
      : await (await viewForPaper(sheet, 7)).background("white").toImageURL("png", 3);
    link.click();
  }

  for (const element of document.querySelectorAll(".chart")) {
    const line = document.createElement("p");
    line.className = "save";
    line.append("Save as ");
    for (const kind of ["svg", "png"]) {
      const button = document.createElement("button");
      button.textContent = kind.toUpperCase();
      button.addEventListener("click", () => {
        const shown = sheets.filter((sheet) => sheet.element === element)[element.dataset.choice || 0];
        save(shown, kind).catch((error) => fail(element, error.message));
      });
      line.append(button, " ");
    }
    element.after(line);
  }

  /* What `--figures` writes and prints. */
  const printed = sheets.filter(({ figure }) => !figure.aside);
  window.sheets = {
    list: () => printed.map(({ name, title }) => ({ name, title })),
    show: async (number, inches) => {
      const drawn = await svgForPaper(printed[number], inches);
      document.body.innerHTML = drawn.svg;
      return drawn;
    },
  };

  Object.assign(require("vega-dataflow").transforms, require("vega-transforms"),
    require("vega-view-transforms"), require("vega-encode"));
  drawVisible(true);

  let width = root.clientWidth, waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (root.clientWidth !== width) drawVisible(true);
      width = root.clientWidth;
    }, 150);
  });
  dark.addEventListener("change", () => drawVisible(true));
})();
