/* What the pages need of their own beside the theme. */
(() => {
  /* A formula wider than the screen scrolls. It takes the focus then, so that
     the arrow keys scroll it; the theme does the same for code and tables. */
  const markFormulas = () => {
    for (const box of document.querySelectorAll(".math")) {
      if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };

  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(markFormulas, 200);
  });
  window.addEventListener("load", async () => {
    await window.MathJax?.startup?.promise;
    markFormulas();
    /* The formulas have moved the text since the page was opened. */
    const target = document.querySelector(":target");
    target?.scrollIntoView({ behavior: "instant" });
  });

  /* Paper is white. */
  const root = document.documentElement;
  let theme;
  window.addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
  });
  window.addEventListener("afterprint", () => {
    root.dataset.theme = theme;
  });
})();
