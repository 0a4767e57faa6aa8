// Everything works without this file: it only saves clicks.
"use strict";

document.documentElement.classList.add("scripted");

// The slider says where it is while it is moved, and goes there when it is let go.
for (const form of document.querySelectorAll("[data-slider]")) {
  const range = form.querySelector("input[type=range]");
  const label = form.querySelector("label");
  const moments = [...form.querySelectorAll("option")].map((option) => option.label);
  range.addEventListener("input", () => { label.textContent = moments[range.value]; });
  range.addEventListener("change", () => form.requestSubmit());
}

// j and k go to the next and the previous entry, / to the search.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (event.key === "/") {
    event.preventDefault();
    location.assign("/search");
  }
  if (event.key !== "j" && event.key !== "k") return;
  const stops = [...document.querySelectorAll(".entry .position, tbody th > a, .hit-session, .memories .name")];
  const at = stops.indexOf(document.activeElement);
  const next = stops[event.key === "j" ? at + 1 : Math.max(0, at - 1)];
  if (next) {
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "center" });
  }
});
