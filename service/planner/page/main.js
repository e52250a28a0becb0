/** Starts the page: reads the question of the link, asks it at once, and connects the parts. */

import { Asker } from "./asker.js";
import { connectFields, showFaults } from "./choose.js";
import { byId } from "./dom.js";
import { helpFor } from "./help.js";
import { askForKey } from "./key.js";
import { early, readOr } from "./early.js";
import { written } from "./link.js";
import { copy } from "./live.js";
import { showMemory } from "./memory.js";
import { Store } from "./question.js";
import { connectSliders } from "./sliders.js";
import { connectSources, showSources } from "./sources.js";
import { showStrip } from "./strip.js";
import { connectTheme } from "./theme.js";
import { showVerdict, showWaiting } from "./verdict.js";
import { connectViews, viewOf } from "./views.js";

/** Milliseconds after a change until the address says it: browsers limit how often it may change. */
const ADDRESS_MS = 300;

/** Milliseconds for which all else waits for the first answer. */
const FIRST_MS = 1000;

async function begin() {
  const { question, coming } = await early;
  const store = new Store(question);
  const shown = { machine: null, now: null };
  const asker = new Asker((now) => show(now), showWaiting);
  store.listen((question, moving) => asker.take(question, moving));
  if (coming !== null) asker.expect(question, coming);
  if (viewOf(location.hash) === "plan") asker.take(question, false);

  byId("what-if").open = !matchMedia("(width < 60rem)").matches;
  connectTheme();
  connectSources();
  const sliders = connectSliders(store);
  connectFields(
    store,
    (machine) => {
      const unnamed = shown.machine === null && shown.now?.problem;
      shown.machine = machine;
      sliders.machine(machine);
      if (unnamed) show(shown.now); // a refusal that came before says more with the machine's names
    },
    (model) => sliders.model(model),
    coming === null ? Promise.resolve() : Promise.race([coming.then(painted, () => {}), pause(FIRST_MS)]),
  );
  let load = () => {};
  const wanted = new Promise((resolve) => {
    load = resolve;
  });
  const parts = wanted.then(() => import("./parts.js")).then((more) => more.connectParts(store));

  function show(now) {
    shown.now = now;
    showVerdict(now, { hardware: shown.machine, help: now.problem ? helpFor(now.problem, store, shown.machine) : [] });
    showFaults(now.problem ?? null);
    if (now.problem?.status === 401) askForKey(() => asker.take(store.question, false));
    for (const id of ["strip", "memory", "sources"])
      byId(id).classList.toggle("stale", now.stale || now.problem !== undefined);
    byId("answer").classList.toggle(
      "empty-handed",
      !now.answer && byId("strip").querySelector(".body").childElementCount === 0,
    );
    if (now.answer) {
      showStrip(byId("strip").querySelector(".body"), now.answer);
      showMemory(byId("memory").querySelector(".body"), now.answer);
      showSources(now.answer);
    }
    void painted().then(load);
    void parts.then(({ take }) => take(now));
  }

  keepAddress(store);
  connectViews(() => {
    if (asker.number === 0) asker.take(store.question, false);
  }, load);
  watchPocket();
  byId("copy-link").addEventListener("click", async () =>
    copy(
      await linkTo(
        viewOf(location.hash) === "studies" ? await (await parts).studyLink() : `#${await written(store.question)}`,
      ),
      "Link",
    ),
  );
  document.addEventListener("click", jump);
}

/** Wait until what was changed is on the screen. */
function painted() {
  return new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
}

const pause = (duration) => new Promise((resolve) => setTimeout(resolve, duration));

function keepAddress(store) {
  let timer = 0;
  let mine = location.hash;
  store.listen(() => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      mine = `#${await written(store.question)}`;
      history.replaceState(null, "", mine);
    }, ADDRESS_MS);
  });
  addEventListener("hashchange", async () => {
    if (location.hash !== mine && location.hash.includes("model=")) store.change(await readOr(location.hash));
  });
}

/** Return the page's address with a question in it, which it takes for its own. */
async function linkTo(hash) {
  const address = new URL(location.href);
  address.hash = hash;
  history.replaceState(null, "", address.hash);
  return address.href;
}

/** On narrow screens the answer in short stays in view while the verdict is out of it. */
function watchPocket() {
  new IntersectionObserver(([entry]) => {
    byId("pocket").hidden = entry.isIntersecting || viewOf(location.hash) !== "plan";
  }).observe(byId("verdict"));
}

/** Links inside the page scroll without changing the address, which holds the question. */
function jump(event) {
  const link = event.target.closest?.("a[data-jump], a.skip");
  if (!link) return;
  event.preventDefault();
  const target = byId(link.getAttribute("href").slice(1));
  target.scrollIntoView({
    behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
    block: "start",
  });
  if (link.classList.contains("skip")) target.focus();
}

void begin();
