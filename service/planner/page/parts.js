/** The parts of the page that come after the first answer: they are loaded while the service plans it. */

import { alternativesPanel } from "./alternatives.js";
import { curvesPanel } from "./curves.js";
import { h } from "./dom.js";
import { enginesPanel } from "./engines.js";
import { servingPanel } from "./serving.js";
import { connectStudies } from "./studies.js";
import { timelinePanel } from "./timeline.js";

const STYLES = ["assets/vendor/uPlot.min.css", "assets/style/charts.css", "assets/style/keys.css"];

/**
 * @param {import("./question.js").Store} store
 * @returns {{take: (shown: import("./asker.js").Shown) => void, studyLink: () => Promise<string>}}
 */
export function connectParts(store) {
  for (const href of STYLES) document.head.append(h("link", { rel: "stylesheet", href }));
  const parts = [enginesPanel(), alternativesPanel(), curvesPanel(), timelinePanel(), servingPanel()];
  const studies = connectStudies(store);
  const take = ({ answer, question, quick, stale }) => {
    const rests = answer && !quick && !stale;
    for (const { panel, show } of parts) {
      if (answer) show(answer);
      panel.take(rests ? question : null);
    }
  };
  return { take, studyLink: studies.link };
}
