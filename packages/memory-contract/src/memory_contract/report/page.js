// Everything that comes from a store is put onto the page as text, never as markup.
// `lanes.js`, which draws the timeline, stands before this in the same script.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const state = { at: 0, failure: 0, view: "minimal", session: "", pinned: null };
const bySlug = new Map(data.cases.map((found, at) => [found.slug, at]));

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== ""));
  return made;
}

// Names may hold what moves, turns around or hides text.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]|\p{Surrogate}/gu;
const plain = (text) =>
  String(text).replace(HIDDEN, (found) => "\\u" + found.charCodeAt(0).toString(16).padStart(4, "0"));
const number = (count) => count.toLocaleString("en").replaceAll(",", " ");
const many = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
const kind = (verdict) => verdict.toLowerCase().replace(" ", "-");
const pill = (verdict) => el("span", { class: `pill ${kind(verdict)}` }, verdict);
// Most cases take less than a second: there, a thousandth of it is a long time.
function seconds(found, at) {
  found.ended_ns = found.ended_ns || Math.max(...found.operations.map((op) => op.to ?? op.from));
  const ms = (at - found.began_ns) / 1e6;
  return found.ended_ns - found.began_ns < 1e10 ? `${ms.toFixed(2)} ms` : `${(ms / 1e3).toFixed(3)} s`;
}
const opId = (found, place) => `op-${found.slug}-${place}`;
const current = () => data.cases[state.at];
const failure = () => current().failures[state.failure] || null;

// The head of the page, and the gates

function drawTop() {
  byId("top").replaceChildren(
    el("h1", {}, pill(data.verdict), " ", el("span", { class: "target" }, plain(data.target))),
    el("p", { class: "facts" }, `contract ${data.contract} · seed ${data.seed} · ` +
      `${many(data.cases.length, "case")} · ${data.duration_s} s`),
    el("p", { class: "facts" }, data.badge),
    ...data.notes.map((note) => el("p", { class: "note" }, plain(note))),
  );
}

function drawGates() {
  const shown = data.verdicts.filter((name) =>
    name === "PASS" || name === "FAIL" || data.gates.some((gate) => gate.counts[name]));
  const head = el("tr", {}, el("th", {}, "gate"), el("th", {}, ""),
    ...shown.map((name) => el("th", { class: "count" }, name.toLowerCase())));
  const bodies = data.gates.map((gate) => el("tbody", {},
    el("tr", {},
      el("th", { scope: "row" }, gate.name, el("small", {}, gate.about,
        gate.verdict === "NOT RUN" && !gate.counts["NOT RUN"] ? ". No case of it ran." : "")),
      el("td", {}, pill(gate.verdict), el("small", { class: "tally" },
        shown.filter((name) => gate.counts[name]).map((name) => `${gate.counts[name]} ${name.toLowerCase()}`).join(" · "))),
      ...shown.map((name) =>
        el("td", { class: `count ${gate.counts[name] ? kind(name) : "none"}` }, String(gate.counts[name] || "·")))),
    el("tr", {}, el("td", { colspan: shown.length + 2 }, casesOf(gate.name)))));
  byId("gates").replaceChildren(el("table", { class: "gates" }, el("thead", {}, head), ...bodies));
}

function casesOf(gate) {
  const names = [...new Set(data.cases.filter((found) => found.gate === gate).map((found) => found.case))];
  const group = (name) => el("li", {}, name, " ", ...data.cases
    .filter((found) => found.gate === gate && found.case === name)
    .map((found) => el("a", {
      class: `mode ${kind(found.verdict)}`, href: `#case-${found.slug}`, "data-slug": found.slug,
      title: `${found.verdict}${found.reason ? ": " + plain(found.reason) : ""}`,
    }, found.mode)));
  const failing = data.cases.some((found) => found.gate === gate && found.verdict !== "PASS" &&
    found.verdict !== "NOT CLAIMED");
  return el("details", failing ? { open: "" } : {},
    el("summary", {}, many(names.length, "case")), el("ul", { class: "cases" }, names.map(group)));
}

// One case: its proof, beside its timeline

function drawCase() {
  const found = current();
  for (const link of document.querySelectorAll("a.mode")) {
    const ours = link.dataset.slug === found.slug;
    link.classList.toggle("chosen", ours);
    if (ours) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  byId("case").replaceChildren(
    el("h2", {}, pill(found.verdict), ` ${found.case} `, el("span", { class: "quiet" }, `${found.gate} · ${found.mode}`)),
    el("p", { class: "quiet" }, found.does),
    found.reason && !found.failures.length ? el("p", {}, plain(found.reason)) : "",
    ...found.notes.map((note) => el("p", { class: "note" }, plain(note))),
    found.operations.length || found.failures.length
      ? el("div", { class: "sides" }, proofPanel(found), timelinePanel(found))
      : el("p", { class: "quiet" }, emptyWords(found)),
  );
  unlight();
}

function emptyWords(found) {
  if (found.recorded) return "There was no room for its operations on this page.";
  return found.verdict === "PASS" || found.verdict === "FAIL"
    ? "This case looks at contents; it records no operations."
    : "Nothing of it was recorded.";
}

function proofPanel(found) {
  const about = failure();
  const panel = el("aside", { class: "proof" });
  if (!about) {
    panel.append(el("h3", {}, "What ran"), el("p", {}, `Recorded: ${many(found.recorded, "operation")}. ` +
      (found.verdict === "PASS" ? "Nothing in them breaks the contract." : plain(found.reason))));
  } else {
    if (found.failures.length > 1) panel.append(failureChoice(found));
    panel.append(
      el("h3", { class: "anomaly" }, about.name.toUpperCase()),
      el("p", { class: "quiet" }, about.session ? ["session ", el("code", {}, plain(about.session)), " · "] : "",
        `seed ${found.seed} · ${about.proved ? "proved" : "seen by the case"}`),
      el("p", { class: "happened" }, withEntries(`${plain(about.happened)}.`, about)),
      witnessList(found, about),
      about.why ? el("p", {}, withEntries(plain(about.why), about)) : "",
      about.likely ? el("p", { class: "likely" }, `Likely: ${plain(about.likely)}.`) : "",
      crossed(found, about),
      fates(found, about),
    );
  }
  panel.append(
    found.schedule ? el("div", { class: "schedule" }, el("h4", {}, "schedule"),
      found.schedule.split("\n").map((line) => el("p", {}, plain(line)))) : "",
    el("p", { class: "again" }, "Reproduce with", el("code", {}, found.reproduce)),
    el("div", { class: "buttons" },
      copyButton("copy command", found.reproduce), about ? copyButton("copy as test", about.program) : ""),
    about ? el("details", {}, el("summary", {}, "the test"), el("pre", {}, about.program)) : "",
    el("div", { id: "chosen-op" }));
  return panel;
}

function failureChoice(found) {
  const rest = found.failed - found.failures.length;
  return el("label", { class: "choice" }, `${many(found.failed, "failure")} `,
    el("select", { id: "failure", onchange: (event) => {
      Object.assign(state, { failure: Number(event.target.value), view: "minimal", pinned: null });
      state.session = failure().session;
      drawCase();
    } }, found.failures.map((each, at) => el("option", { value: at, selected: at === state.failure ? "" : null },
      `${each.name} · ${plain(each.ids.slice(0, 3).join(" ") || each.session)}`))),
    rest > 0 ? ` (${rest} more are in report.json)` : "");
}

function withEntries(text, about) {
  const known = new Set(about.ids.map(plain));
  return text.split(/([^\s,;()[\]]+)/).map((word) => {
    const id = word.replace(/\.$/, "");
    return known.has(id) ? [entry(about.ids.find((each) => plain(each) === id)), word.slice(id.length)] : word;
  });
}

function entry(id, extra = "") {
  return el("button", { type: "button", class: `entry ${extra}`, "data-entry": id }, plain(id));
}

function witnessList(found, about) {
  const rows = [...about.witness, ...about.beside].slice(0, 6).sort((a, b) =>
    found.operations[a].from - found.operations[b].from);
  return el("ol", { class: "witness" }, rows.map((place) => {
    const op = found.operations[place];
    return el("li", { class: op.outcome },
      el("a", { href: `#${opId(found, place)}` }, `${plain(op.worker)} ${call(op)}`), " ",
      el("span", { class: "quiet" }, `${seconds(found, op.from)} → ${op.to === null ? "…" : seconds(found, op.to)} ${op.outcome}`,
        about.beside.includes(place) ? " · overlaps" : ""),
      el("div", { class: "ids" }, idsOf(op, about, 8)));
  }));
}

function call(op) {
  const words = [op.op, op.snapshot, op.op === "trim" ? `keep ${op.keep}` : "", op.op === "fork" ? `into ${op.target}` : "",
    op.limit === undefined ? "" : `last ${op.limit}`, op.key ? `key ${op.key}` : ""];
  return plain(words.filter(Boolean).join(" "));
}

// The entries of an operation: those that matter, their neighbours, and those that should be there.
function idsOf(op, about, most, lacks = "last") {
  const ids = entriesOf(op);
  const first = about ? Math.max(0, ids.findIndex((id) => about.ids.includes(id))) : 0;
  const start = Math.max(0, Math.min(first - Math.floor(most / 2), ids.length - most));
  const shown = ids.slice(start, start + most);
  const left = ids.length - start - shown.length;
  const chips = shown.map((id) => entry(id, about && about.ids.includes(id) ? "about" : ""));
  const missing = about ? about.ids.filter((id) => misses(current(), op, id)).slice(0, most) : [];
  const lacking = missing.map((id) => entry(id, "missing"));
  return [
    ...(lacks === "first" ? lacking : []),
    start ? el("span", { class: "quiet" }, `${start} … `) : "", ...chips,
    left ? el("span", { class: "quiet" }, ` … ${left}`) : "",
    !ids.length && (op.op === "read" || op.op === "pop") && op.outcome === "ok" ? el("span", { class: "quiet" }, "nothing") : "",
    ...(lacks === "last" ? lacking : []),
  ];
}

const entriesOf = (op) => op.ids || (Array.isArray(op.value) ? op.value : op.op === "pop" && op.value ? [op.value] : []);

// What became of an entry

function story(found, id) {
  found.stories = found.stories || new Map();
  if (!found.stories.has(id)) {
    const told = { wrote: [], saw: [], missed: [] };
    found.operations.forEach((op, place) => {
      if (op.ids && op.ids.includes(id)) told.wrote.push(place);
      else if (entriesOf(op).includes(id)) told.saw.push(place);
      else if (misses(found, op, id)) told.missed.push(place);
    });
    found.stories.set(id, told);
  }
  return found.stories.get(id);
}

// A whole read of the entry's session, begun after its append was acknowledged, that lacks it.
function misses(found, op, id) {
  if (op.op !== "read" || op.outcome !== "ok" || op.limit !== undefined || op.snapshot || op.value.includes(id)) return false;
  found.writers = found.writers || new Map(found.operations.flatMap((each) => (each.ids || []).map((one) => [one, each])));
  const writer = found.writers.get(id);
  return Boolean(writer) && writer.session === op.session && writer.outcome === "ok" && writer.to < op.from;
}

function fateWords(found, id) {
  const told = story(found, id);
  const by = (place, when) => `${plain(found.operations[place].worker)} at ${seconds(found, found.operations[place][when])}`;
  const writer = told.wrote[0];
  const words = [writer === undefined ? "written by nobody"
    : `written by ${by(writer, "from")} (${found.operations[writer].outcome})`];
  const last = told.saw.at(-1);
  if (last === undefined) words.push("never seen");
  else {
    words.push(`first seen by ${by(told.saw[0], "from")}`);
    if (told.saw.length > 1) words.push(`last seen by ${by(last, "from")}`);
  }
  const gone = told.missed.find((place) => last === undefined || place > last);
  const popped = told.saw.find((place) => found.operations[place].op === "pop");
  if (popped !== undefined) words.push(`taken away by ${by(popped, "from")}`);
  else if (gone !== undefined) words.push(`gone: not in the read of ${by(gone, "from")}`);
  return words.join(" → ");
}

function fates(found, about) {
  if (!about.ids.length) return "";
  return el("dl", { class: "fates" }, about.ids.slice(0, 4).map((id) =>
    [el("dt", {}, entry(id, "about")), el("dd", {}, fateWords(found, id))]));
}

// Two orders that cannot both be: side by side, with the pair that crosses

function crossed(found, about) {
  if (!/reorder|program-order/.test(about.name) || about.ids.length < 2) return "";
  const [a, b] = about.ids;
  const ordered = about.witness.map((place) => found.operations[place])
    .map((op) => ({ op, ids: entriesOf(op) })).filter(({ ids }) => ids.includes(a) && ids.includes(b));
  const forward = ({ ids }) => ids.indexOf(a) < ids.indexOf(b);
  const one = ordered.find(forward);
  let two = ordered.find((each) => !forward(each));
  const title = ({ op }) => `${plain(op.worker)} ${op.op === "append" ? "appended" : "saw"}`;
  if (one && !two) {
    const written = [b, a].map((id) => found.operations[story(found, id).wrote[0]]);
    if (written.includes(undefined)) return "";
    two = { op: null, ids: [b, a] };
  }
  if (!one || !two) return "";
  const column = (side) => around(side.ids, [a, b]);
  const [left, right] = [column(two), column(one)];
  const list = (ids, heading) => el("div", {}, el("h4", {}, heading), el("ol", {}, ids.map((id) =>
    el("li", {}, id === null ? "…" : entry(id, id === a ? "one" : id === b ? "two" : "")))));
  return el("div", { class: "crossed" }, list(left, two.op ? title(two) : "appended"),
    crossing(left, right, [a, b]), list(right, title(one)));
}

function around(ids, pair) {
  const places = pair.map((id) => ids.indexOf(id));
  const keep = ids.map((_, at) => places.some((place) => Math.abs(at - place) <= 1));
  return ids.flatMap((id, at) => keep[at] ? [id] : keep[at - 1] ? [null] : []);
}

function crossing(left, right, pair) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const row = 28;
  svg.setAttribute("viewBox", `0 0 60 ${Math.max(left.length, right.length) * row}`);
  svg.setAttribute("height", String(Math.max(left.length, right.length) * row));
  svg.setAttribute("aria-hidden", "true");
  pair.forEach((id, at) => {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const points = { x1: 0, y1: (left.indexOf(id) + 0.5) * row, x2: 60, y2: (right.indexOf(id) + 0.5) * row };
    for (const [name, value] of Object.entries(points)) line.setAttribute(name, String(value));
    line.setAttribute("class", at ? "two" : "one");
    svg.append(line);
  });
  return svg;
}

// Light on an entry: every operation that wrote it, saw it, or should have

function light(id) {
  const found = current();
  const told = story(found, id);
  unlight();
  const lanesDrawn = document.querySelector(".lanes");
  if (lanesDrawn) lanesDrawn.classList.add("lit");
  for (const [role, places] of Object.entries(told)) {
    for (const at of places) byId(opId(found, at))?.classList.add(role);
  }
  for (const chip of document.querySelectorAll(".entry")) chip.classList.toggle("on", chip.dataset.entry === id);
  byId("fate").replaceChildren(el("strong", {}, plain(id)), ` ${fateWords(found, id)}`);
  byId("fate").hidden = false;
}

function unlight() {
  for (const bar of document.querySelectorAll(".wrote, .saw, .missed")) bar.classList.remove("wrote", "saw", "missed");
  for (const chip of document.querySelectorAll(".entry.on")) chip.classList.remove("on");
  document.querySelector(".lanes")?.classList.remove("lit");
  byId("fate").hidden = true;
}

const entryAt = (event) => event.target instanceof Element ? event.target.closest(".entry")?.dataset.entry : undefined;
const rest = () => { if (state.pinned === null) unlight(); else light(state.pinned); };
for (const [name, act] of [["mouseover", light], ["focusin", light]]) {
  document.addEventListener(name, (event) => { const id = entryAt(event); if (id !== undefined) act(id); });
}
for (const name of ["mouseout", "focusout"]) {
  document.addEventListener(name, (event) => { if (entryAt(event) !== undefined) rest(); });
}
document.addEventListener("click", (event) => {
  const id = entryAt(event);
  if (id !== undefined) { state.pinned = state.pinned === id ? null : id; rest(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { state.pinned = null; rest(); }
});

// Copying

function copyButton(words, text) {
  return el("button", { type: "button", class: "copy", onclick: async (event) => {
    const button = event.currentTarget;
    button.textContent = await copy(text) ? "copied" : "could not copy: select it below";
    setTimeout(() => { button.textContent = words; }, 1500);
  } }, words);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page from a file may not have a clipboard; the old way still works there.
    const area = el("textarea", {});
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

// Links: #case-... opens a case, #op-... an operation of it

function choose(at) {
  const found = data.cases[at];
  const first = found.failures[0];
  Object.assign(state, { at, failure: 0, view: first ? "minimal" : "run", pinned: null,
    session: first ? first.session : found.operations[0]?.session ?? "" });
}

function showOp(at, place) {
  const found = data.cases[at];
  if (state.at !== at) choose(at);
  const op = found.operations[place];
  if (!op) return drawCase();
  if (!shownPlaces(found).includes(place)) {
    state.view = op.session === state.session ? "session" : "run";
  }
  if (!byId(opId(found, place))) drawCase();
  for (const bar of document.querySelectorAll(".bar.chosen")) bar.classList.remove("chosen");
  const bar = byId(opId(found, place));
  if (!bar) return undefined;
  bar.classList.add("chosen");
  bar.scrollIntoView({ block: "center", inline: "center" });
  byId("chosen-op").replaceChildren(el("h3", {}, "Operation ", el("a", { href: `#${bar.id}` }, "link")),
    el("p", {}, opWords(found, op)), el("div", { class: "ids" }, entriesOf(op).map((id) => entry(id))));
  return undefined;
}

function follow() {
  const hash = decodeURIComponent(location.hash.slice(1));
  const op = /^op-(.+)-(\d+)$/.exec(hash);
  if (op && bySlug.has(op[1])) { showOp(bySlug.get(op[1]), Number(op[2])); return; }
  const slug = hash.replace(/^case-/, "");
  if (bySlug.has(slug)) {
    choose(bySlug.get(slug));
    drawCase();
    byId("case").scrollIntoView();
  }
}

function start() {
  drawTop();
  drawGates();
  if (!data.cases.length) return;
  const weight = (found) => ["FAIL", "UNKNOWN", "VACUOUS", "NOT RUN", "DEVIATION"].indexOf(found.verdict);
  const worst = data.cases.findIndex((found) => found.verdict === "FAIL");
  const next = data.cases.findIndex((found) => weight(found) >= 0);
  choose(worst >= 0 ? worst : Math.max(0, next));
  drawCase();
  if (location.hash) follow();
}

window.addEventListener("hashchange", follow);
start();
