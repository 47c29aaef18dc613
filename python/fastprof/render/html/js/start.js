// Starts what stands in the page.

function start() {
  startTheme();
  for (const table of document.querySelectorAll("table")) startTable(table);
  for (const figure of document.querySelectorAll(".chart")) new Chart(figure);
  if (document.getElementById("data")) startPage();
  // Two frames later the first one is on the screen.
  requestAnimationFrame(() => requestAnimationFrame(() => {
    document.documentElement.setAttribute("data-ready", performance.now().toFixed(0));
  }));
}

start();
