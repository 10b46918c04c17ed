// Plotly, loaded when there is something to draw: it is 1.4 MB. Its colours are roles of the theme.

let loading;
// Plotly brings styles of its maps, which we do not draw and the pages' policy refuses: it leaves them out where an
// element of this id is there. A test holds the id against the package.
const MAP_STYLES = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";

export function plotly(address) {
  loading ??= new Promise((done, fail) => {
    const instead = document.createElement("meta");
    instead.id = MAP_STYLES;
    const script = document.createElement("script");
    script.src = address;
    script.onload = () => done(window.Plotly);
    script.onerror = fail;
    document.head.append(instead, script);
  });
  return loading;
}

export const role = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const font = () => ({ family: getComputedStyle(document.body).fontFamily, size: 12, color: role("--ink-2") });

export function axis(more = {}) {
  const line = role("--line");
  return { gridcolor: line, linecolor: line, zerolinecolor: line, tickfont: { color: role("--ink-2") }, automargin: true, ...more };
}

// Calls `draw` again when the theme changes.
export function redrawnByTheme(draw) {
  new MutationObserver(() => { if (window.Plotly) draw(); }).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}
