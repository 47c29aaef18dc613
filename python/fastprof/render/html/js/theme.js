// Light, dark, or as the system says.  What draws itself listens with onTheme().

const themeListeners = [];

/** Call `listener` whenever the colours have changed. */
function onTheme(listener) {
  themeListeners.push(listener);
}

function setTheme(theme) {
  const root = document.documentElement;
  if (theme === "auto") root.removeAttribute("data-theme");
  else root.setAttribute("data-theme", theme);
  for (const listener of themeListeners) listener();
}

function startTheme() {
  const chosen = () => document.querySelector("input[name=theme]:checked").value;
  const choice = document.getElementById("theme");
  choice.hidden = false;
  choice.addEventListener("change", () => setTheme(chosen()));
  const system = matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  const show = () => setTheme(printing ? "light" : chosen()); // paper is white
  system.addEventListener("change", show);
  for (const event of ["beforeprint", "afterprint"]) {
    addEventListener(event, () => {
      printing = event === "beforeprint";
      show();
    });
  }
}
