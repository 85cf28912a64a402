"use strict";
// Draws the charts in the colours of the reader's theme, and again when the theme changes.
(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  // "@c0" is a theme colour, "@c0/fill" the same one, see-through.
  function coloured(value) {
    if (typeof value === "string" && value.startsWith("@")) {
      const [name, fill] = value.slice(1).split("/");
      return css(name) + (fill ? "88" : "");
    }
    if (Array.isArray(value)) return value.map(coloured);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, coloured(inner)]));
    }
    return value;
  }

  function draw() {
    const narrow = window.innerWidth < 560;
    const axis = { gridcolor: css("line"), zerolinecolor: css("line"), linecolor: css("line"), automargin: true };
    for (const [id, figure] of Object.entries(figures)) {
      const layout = coloured(figure.layout);
      for (const key of Object.keys(layout)) {
        if (/^[xy]axis/.test(key)) layout[key] = Object.assign({}, axis, layout[key]);
      }
      Object.assign(layout, {
        height: figure.height,
        margin: { l: narrow ? 44 : 64, r: 12, t: 8, b: 44 },
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: css("ink"), family: "system-ui, sans-serif", size: narrow ? 11 : 13 },
        hoverlabel: { bgcolor: css("panel"), bordercolor: css("line"), font: { color: css("ink") }, namelength: -1 },
        legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "normal" },
        showlegend: true,
      });
      Plotly.react(id, coloured(figure.data), layout, { responsive: true, displaylogo: false, displayModeBar: false });
    }
  }

  draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
