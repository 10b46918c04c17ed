// The theme before the first paint; loaded with blocking="render". The choice is a cookie, so that the
// server writes data-theme itself; without one the system decides.

const root = document.documentElement;
const darkSystem = matchMedia("(prefers-color-scheme: dark)");
let chosen = Boolean(root.dataset.theme);

function apply(theme) {
  root.dataset.theme = theme;
  dispatchEvent(new CustomEvent("themechange"));
}

export function toggleTheme() {
  const theme = root.dataset.theme === "dark" ? "light" : "dark";
  chosen = true;
  document.cookie = `theme=${theme}; path=/; max-age=31536000; samesite=lax`;
  apply(theme);
}

if (!chosen) apply(darkSystem.matches ? "dark" : "light");
darkSystem.addEventListener("change", () => { if (!chosen) apply(darkSystem.matches ? "dark" : "light"); });
document.addEventListener("click", (event) => { if (event.target.closest("[data-act=theme]")) toggleTheme(); });
