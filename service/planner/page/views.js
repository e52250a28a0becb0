/** The two views of the page: one answer, and studies. The address says which. */

import { byId } from "./dom.js";

/** @param {string} hash @returns {"plan" | "studies"} */
export function viewOf(hash) {
  return new URLSearchParams(hash.slice(1)).get("view") === "studies" ? "studies" : "plan";
}

/**
 * @param {() => void} planSeen is called when the view of one answer comes up
 * @param {() => void} studiesSeen when that of studies does
 */
export function connectViews(planSeen, studiesSeen) {
  let back = "";
  const apply = () => {
    const view = viewOf(location.hash);
    byId("plan-view").hidden = view !== "plan";
    byId("studies-view").hidden = view !== "studies";
    if (view === "studies") byId("pocket").hidden = true;
    for (const link of document.querySelectorAll("[data-view]")) {
      if (link.dataset.view === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = view === "plan" ? "Helm – will it fit, and how fast?" : "Helm – studies";
    if (view === "plan") planSeen();
    else studiesSeen();
  };
  for (const link of document.querySelectorAll("[data-view]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      if (viewOf(location.hash) === link.dataset.view) return;
      if (link.dataset.view === "studies") back = location.hash;
      history.pushState(null, "", link.dataset.view === "studies" ? "#view=studies" : back || "#");
      apply();
      scrollTo(0, 0);
    });
  }
  addEventListener("popstate", apply);
  apply();
}
