"use strict";
// What the scripts of the page share. Whatever a model wrote is put on the page as text nodes only.
const page = (() => {
  const get = (id) => document.getElementById(id);

  // Three digits, as the page writes them: 0.537, 1.43e-6, 15 274.
  function number(x) {
    const size = Math.abs(x);
    if (size >= 1000 && (size < 1e7 || Number.isSafeInteger(x))) {
      const digits = String(Math.round(size)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
      return (x < 0 ? "\u2212" : "") + digits;
    }
    const text = size !== 0 && (size < 1e-4 || size >= 1e7) ? x.toExponential(2) : String(Number(x.toPrecision(3)));
    return text.replace("e+", "e").replace(/^-/, "\u2212");
  }

  const make = (tag, className = "", text = "") => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text) element.textContent = text;
    return element;
  };

  // Copies what stands before a button; where that is not allowed, the text is selected.
  async function copy(button) {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    } catch {
      getSelection().selectAllChildren(code);
    }
  }
  document.addEventListener("click", (event) => {
    if (event.target.closest?.(".copy")) copy(event.target.closest(".copy"));
  });

  document.documentElement.classList.add("on");
  return { get, make, number, data: JSON.parse(get("data").textContent), choose: () => {} };
})();
