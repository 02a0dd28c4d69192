/* Formulas, and the language switch of the header. */
(function () {
  "use strict";

  function formulas() {
    document.querySelectorAll(".formula").forEach(function (each) {
      window.katex.render(each.textContent, each, { displayMode: true, throwOnError: true });
    });
  }

  /* The switch leads to the same page in the other language: both sites have all pages, at the same places. */
  function languages() {
    var chinese = document.documentElement.lang === "zh";
    document.querySelectorAll("a.md-select__link[hreflang]").forEach(function (link) {
      var home = new URL(link.getAttribute("href"), document.baseURI).href;
      var here = document.querySelector("a.md-logo, .md-header__button.md-logo");
      if (link.hreflang === (chinese ? "zh" : "en") || !here) return;
      var root = new URL(".", here.href).href;
      var page = window.location.href.split(/[?#]/)[0].slice(root.length);
      if (!page.startsWith("api/")) link.href = new URL(page, new URL(".", home)).href;
    });
  }

  document.addEventListener("DOMContentLoaded", function () {
    formulas();
    languages();
  });
})();
