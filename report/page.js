"use strict";
(async () => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 600px)");
  const hidden = new Set();
  let axis = "step";

  sortTables();
  try {
    await loadPlotly();
  } catch (error) {
    say(`The figures cannot be drawn: this browser could not unpack the script inside the page (${error.message}). ` +
      "Chrome 80, Edge 80, Safari 16.4, Firefox 113 and later can. The tables are complete.");
    return;
  }
  for (const figure of data.figures) {
    try {
      await draw(figure);
    } catch (error) {
      place(figure).textContent = `This figure could not be drawn: ${error.message}`;
      console.error(figure.id, error);
    }
  }
  root.dataset.drawn = "true";

  dark.addEventListener("change", drawAll);
  narrow.addEventListener("change", drawAll);
  addEventListener("beforeprint", () => { root.dataset.theme = "light"; drawAll(); });
  addEventListener("afterprint", () => { delete root.dataset.theme; drawAll(); });
  for (const input of document.querySelectorAll("input[name=axis]")) {
    input.addEventListener("change", () => { axis = input.value; drawAll(); });
    if (input.checked) axis = input.value;
  }
  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => toggle(button.dataset.run));
  }

  /** Unpack plotly's script from the page and run it. */
  async function loadPlotly() {
    const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    if (!window.Plotly) throw new Error("its script did not run");
  }

  function place(figure) {
    return document.getElementById(figure.id).querySelector(".plot");
  }

  function drawAll() {
    return Promise.all(data.figures.map(draw));
  }

  function draw(figure) {
    const touch = matchMedia("(pointer: coarse)").matches;
    const layout = coloured(merged(base(touch), figure.layout));
    if (figure.axes[axis]) {
      layout.xaxis.title = { ...layout.xaxis.title, text: figure.axes[axis] };
      layout.xaxis.unifiedhovertitle = { text: `${figure.axes[axis]}: %{x:,.6~g}` };
    }
    const traces = figure.traces.map((trace) => {
      const one = coloured(trace);
      if (one.xs) one.x = one.xs[axis] ?? one.xs.step;
      delete one.xs;
      if (one.meta && hidden.has(one.meta.run)) one.visible = false;
      if (muted(figure).has(one.name)) one.visible = false;
      return one;
    });
    if (figure.keys) list(figure, traces);
    return Plotly.react(place(figure), traces, layout, {
      responsive: true, displaylogo: false, displayModeBar: touch || figure.layout.barmode ? false : "hover",
      // Named one by one: by default plotly offers to send the chart and its data to a server of its maker.
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
      showSendToCloud: false, plotlyServerURL: "", topojsonURL: "",
    });
  }

  function muted(figure) {
    return (figure.muted ??= new Set());
  }

  /** The figure's traces by name above it; a click hides one or shows it again. Runs have a legend of their own. */
  function list(figure, traces) {
    const keys = document.getElementById(figure.id).querySelector(".keys");
    keys.replaceChildren(...traces.filter((trace) => !trace.meta).map((trace) => {
      const button = document.createElement("button");
      const mark = document.createElement("i");
      mark.className = trace.type === "bar" ? "" : trace.mode === "markers" ? "point" : "line";
      if (trace.marker?.symbol?.endsWith("open")) mark.classList.add("open");
      mark.style.setProperty("--key", trace.line?.color ?? trace.marker.color);
      if (trace.line?.dash && trace.line.dash !== "solid") mark.style.borderTopStyle = "dashed";
      button.type = "button";
      button.setAttribute("aria-pressed", String(!muted(figure).has(trace.name)));
      button.append(mark, plain(trace.name));
      button.addEventListener("click", () => {
        if (!muted(figure).delete(trace.name)) muted(figure).add(trace.name);
        draw(figure).then(() => keys.children[traces.indexOf(trace)]?.focus());
      });
      return button;
    }));
  }

  /** A trace's name without the escapes that plotly needs. */
  function plain(name) {
    return name.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
  }

  /** What all figures have in common. */
  function base(touch) {
    const line = { gridcolor: "var(--line)", zerolinecolor: "var(--line)", linecolor: "var(--line)", automargin: true, ticks: "", nticks: narrow.matches ? 6 : 0 };
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "x unified", dragmode: touch ? false : "zoom",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: "var(--ink-2)" },
      margin: { l: 44, r: 12, t: 10, b: 40 }, showlegend: false,
      hoverlabel: { bgcolor: "var(--panel)", bordercolor: "var(--line)", font: { color: "var(--ink)", size: 12 }, namelength: 40 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "var(--ink-2)", activecolor: "var(--accent)" },
      xaxis: { ...line, title: { standoff: 8 } }, yaxis: { ...line, title: { standoff: 6 } },
      uirevision: axis,
    };
  }

  function merged(one, other) {
    const result = { ...one };
    for (const [key, value] of Object.entries(other)) {
      const both = value && typeof value === "object" && !Array.isArray(value) && result[key];
      result[key] = both ? merged(result[key], value) : value;
    }
    return result;
  }

  /** A copy with the page's colours in place of their names. */
  function coloured(value) {
    if (typeof value === "string") {
      const name = /^var\((--[\w-]+)\)$/.exec(value);
      return name ? getComputedStyle(root).getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map(coloured);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, coloured(child)]));
    }
    return value;
  }

  function toggle(which) {
    if (which === "all") hidden.clear();
    else if (which === "none") for (let run = 0; run < data.runs; run++) hidden.add(run);
    else if (!hidden.delete(Number(which))) hidden.add(Number(which));
    for (const button of document.querySelectorAll(".legend button[aria-pressed]")) {
      button.setAttribute("aria-pressed", String(!hidden.has(Number(button.dataset.run))));
    }
    drawAll();
  }

  /** A click on a column's name sorts its table: numbers by value, what is unknown last. */
  function sortTables() {
    for (const button of document.querySelectorAll("table.sortable th button")) {
      button.addEventListener("click", () => {
        const head = button.parentElement;
        const rising = head.getAttribute("aria-sort") !== "ascending";
        for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        const body = head.closest("table").tBodies[0];
        const rows = [...body.rows].map((row) => [row, row.cells[head.cellIndex]]);
        rows.sort(([, a], [, b]) => compare(a, b, rising ? 1 : -1));
        body.append(...rows.map(([row]) => row));
      });
    }
  }

  function compare(a, b, sign) {
    const [x, y] = [a.dataset.value, b.dataset.value];
    if (x === undefined && y === undefined) return sign * a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
    if (x === undefined || y === undefined) return x === undefined ? 1 : -1;
    return sign * (Number(x) - Number(y));
  }

  function say(text) {
    const message = document.getElementById("message");
    message.textContent = text;
    message.hidden = false;
  }
})();
