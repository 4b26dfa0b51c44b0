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

  /* The charts name ranges and colours; here is what they are. */
  function theme() {
    const style = getComputedStyle(root);
    const of = (name) => style.getPropertyValue("--" + name).trim();
    const font = getComputedStyle(document.body).fontFamily;
    const category = dark.matches
      ? ["#56b4e9", "#e69f00", "#3fc495", "#f0e442", "#e58cc0", "#ff8552", "#9aa7ff", "#b8bec6"]
      : ["#0072b2", "#d98200", "#009e73", "#8a6d00", "#b8528c", "#d55e00", "#4b56c0", "#5f6770"];
    const heat = dark.matches
      ? ["#1f2630", "#23466b", "#2f74a8", "#56b4e9", "#c9ecff"]
      : ["#eef4fa", "#b9d6ec", "#6aaedb", "#2472ab", "#0b335c"];
    const ramp = dark.matches
      ? ["#8f7be8", "#3f9fd0", "#4fd08b", "#f5e663"]
      : ["#440154", "#31688e", "#1f9e77", "#c9a800"];
    const family = report.families.map((name, i) => of("family-" + i));
    const axis = {
      labelFont: font, titleFont: font, labelColor: of("muted"), titleColor: of("text"),
      labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500, titlePadding: 8, labelPadding: 5,
      domainColor: of("line"), gridColor: of("line"), tickColor: of("line"),
    };
    return {
      colours: { accent: of("accent"), text: of("text"), muted: of("muted") },
      config: {
        background: null, axis,
        legend: {
          labelFont: font, titleFont: font, labelColor: of("text"), titleColor: of("text"),
          labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500, symbolStrokeColor: of("text"),
          symbolStrokeWidth: 0, rowPadding: 4, columnPadding: 14,
        },
        range: {
          category, heatmap: heat, ramp, family,
          diverging: dark.matches ? ["#56b4e9", "#101317", "#ff9f40"] : ["#0067a5", "#ffffff", "#c94f00"],
        },
      },
    };
  }

  /* Columns once and rows as arrays, as they travel, become objects. */
  const rows = (table) =>
    table.rows.map((row) => Object.fromEntries(table.columns.map((name, i) => [name, row[i]])));

  function draw(element) {
    const figure = report.figures[element.dataset.figure];
    const choice = figure.choices[element.dataset.choice || 0];
    const { colours, config } = theme();
    const spec = structuredClone(report.charts[figure.chart]);
    const fixed = {
      colours, families: report.families,
      dashes: [[], [], [], [], [], [], [], [], [5, 3], [2, 2], [8, 3, 2, 3], [1, 3]],
      columns: Math.max(1, Math.floor(element.clientWidth / 170)), /* of a legend */
    };
    const signals = (spec.signals || []).filter((signal) => !(signal.name in choice.signals));
    for (const [name, value] of Object.entries({ ...fixed, ...choice.signals })) {
      signals.unshift({ name, value });
    }
    spec.signals = signals;
    spec.width = element.clientWidth;
    spec.padding = { left: 2, right: 8, top: 4, bottom: 6 };
    spec.data.find((data) => data.name === "table").values = rows(choice.table);
    drawing += 1;
    views.get(element)?.finalize();
    try {
      const view = new (require("vega-view").View)(
        require("vega-parser").parse(spec, config, { ast: true }),
        { expr: require("vega-interpreter").expressionInterpreter, renderer: "svg", container: element, logLevel: 1 });
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
