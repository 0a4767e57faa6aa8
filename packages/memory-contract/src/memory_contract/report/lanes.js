"use strict";
// The timeline: a lane for each worker, time runs down

// As many operations as are drawn in full height; more of them scroll under their workers' names.
const WHOLE_MAX = 40;

function shownPlaces(found) {
  const about = failure();
  const all = found.operations.map((_, place) => place);
  if (state.view === "minimal" && about) return [...new Set([...about.minimal, ...about.witness, ...about.beside])].sort((x, y) => x - y);
  if (state.view === "session") return all.filter((place) => found.operations[place].session === state.session);
  return all;
}

function timelinePanel(found) {
  const about = failure();
  const shown = shownPlaces(found);
  const places = shown.filter((place) => found.operations[place].op !== "expire");
  const sessions = [...new Set(found.operations.map((op) => op.session))];
  const button = (view, words) => el("button", { type: "button", "data-view": view, "aria-pressed": String(state.view === view),
    onclick: () => { state.view = view; drawCase(); } }, words);
  const choice = sessions.length > 1 ? el("select", { "aria-label": "session", onchange: (event) => {
    Object.assign(state, { view: "session", session: sessions[Number(event.target.value)] });
    drawCase();
  } }, sessions.map((name, at) => el("option", { value: at, selected: name === state.session ? "" : null }, plain(name)))) : "";
  const kept = found.operations.length;
  const cap = kept < found.recorded
    ? `This page holds ${number(kept)} of them: those of the proofs and their sessions, then the earliest.` : "";
  return el("div", { class: "timeline" },
    el("div", { class: "toggles", role: "group", "aria-label": "how much is shown" },
      about ? button("minimal", "smallest history") : "", button("session", "whole session"), button("run", "whole run"), choice),
    el("p", { class: "quiet" }, `${number(shown.length)} of ${many(found.recorded, "operation")} shown. ${cap}`),
    el("p", { class: "legend" }, ...[["ok", "acknowledged"], ["info", "outcome unknown: it may take effect at any later time"],
      ["fail", "refused: nothing happened"]].map(([name, words]) => el("span", { class: name }, words))),
    el("div", { class: places.length > WHOLE_MAX ? "scroll long" : "scroll", tabindex: "0" }, lanes(found, places)));
}

const group = (found, worker) => {
  // `4711/main`: recorded elsewhere, with the process in front.
  const process = /^([\w.-]+)\//.exec(worker);
  if (process) return process[1];
  if (/^w\d+$/.test(worker)) return found.mode;
  return /^c\d+$/.test(worker) ? "callers" : "others";
};

function lanes(found, places) {
  const ops = places.map((place) => found.operations[place]);
  const rank = (worker) => [group(found, worker), worker];
  const workers = [...new Set(ops.map((op) => op.worker))].sort((a, b) =>
    rank(a)[0] === rank(b)[0] ? a.localeCompare(b, "en", { numeric: true }) : rank(a)[0] < rank(b)[0] ? 1 : -1);
  const begins = (at) => at === 0 || group(found, workers[at - 1]) !== group(found, workers[at]);
  const step = places.length <= 12 ? 32 : 23;
  const bands = found.bands.filter((band) => state.view === "run" || (band.kind === "fault" ? near(band, ops)
    : ops.some((op) => op.session === band.session)));
  const times = [...new Set([...ops, ...bands].flatMap((each) => [each.from, each.to]).filter((at) => at !== null))].sort((a, b) => a - b);
  const top = new Map(times.map((at, row) => [at, row * step]));
  const height = (times.length + 1) * step;
  const body = el("div", { class: "body" });
  body.style.height = `${height}px`;
  marks(found, times, step).forEach((mark) => body.append(mark));
  bands.forEach((band) => body.append(place(el("div", { class: `band ${band.kind}` }, el("span", {}, plain(band.label))),
    top.get(band.from), (band.to === null ? height : top.get(band.to)) - top.get(band.from))));
  workers.forEach((worker, at) => body.append(column(el("div", { class: begins(at) ? "lane begins" : "lane" }), at, workers.length)));
  places.forEach((at) => bars(found, at, { workers, top, height, step, dense: places.length > 1500 }).forEach((bar) => body.append(bar)));
  const heads = el("div", { class: "heads" }, workers.map((worker, at) => column(el("div", { class: "head" },
    el("small", {}, begins(at) ? plain(group(found, worker)) : "\u00a0"),
    plain(worker)), at, workers.length)));
  const drawing = el("div", { class: "lanes" }, heads, body);
  drawing.style.minWidth = `calc(var(--gutter) + ${workers.length} * var(--lane))`;
  return drawing;
}

// Whether a fault struck between the first of these operations and the last.
function near(fault, ops) {
  const ends = ops.map((op) => op.to ?? Infinity);
  return fault.from <= Math.max(...ends) && (fault.to ?? Infinity) >= Math.min(...ops.map((op) => op.from));
}

function place(made, top, height) {
  made.style.top = `${top}px`;
  made.style.height = `${height}px`;
  return made;
}

function column(made, at, count) {
  made.style.left = `calc(var(--gutter) + (100% - var(--gutter)) * ${at / count})`;
  made.style.width = `calc((100% - var(--gutter)) / ${count})`;
  return made;
}

// Rows are events, not moments: where much time passed between two, a line says so.
function marks(found, times, step) {
  const every = Math.max(1, Math.round(44 / step));
  const gap = Math.max(20e6, (times.at(-1) - times[0]) / 8);
  return times.flatMap((at, row) => {
    const made = [];
    if (row && at - times[row - 1] > gap) {
      made.push(place(el("div", { class: "gap" }, el("span", {}, `${((at - times[row - 1]) / 1e9).toFixed(3)} s later`)), row * step - 2, 0));
    }
    if (row % every === 0) made.push(place(el("div", { class: "time" }, seconds(found, at)), row * step, 16));
    return made;
  });
}

function bars(found, at, { workers, top, height, step, dense }) {
  const op = found.operations[at];
  const about = failure();
  const lane = workers.indexOf(op.worker);
  const begin = top.get(op.from);
  const end = op.to === null ? height : Math.max(top.get(op.to), begin + step);
  const roles = about && state.view !== "run" || about && about.witness.includes(at)
    ? (about.witness.includes(at) ? "is-witness" : about.beside.includes(at) ? "is-beside" : "is-around") : "";
  const bar = el("div", { class: `bar ${op.outcome} ${roles} ${op.to === null ? "open" : ""}`, id: opId(found, at), "data-place": at },
    el("a", { href: `#${opId(found, at)}`, title: opWords(found, op) }, call(op)),
    el("span", { class: "ids" }, idsOf(op, about, dense ? 2 : 6, "first")));
  const drawn = [column(place(bar, begin + 1, end - begin - 3), lane, workers.length)];
  if (op.outcome === "info" && op.to !== null) {
    drawn.unshift(column(place(el("div", { class: "tail" }), end - 2, height - end), lane, workers.length));
  }
  return drawn;
}

const opWords = (found, op) => `${plain(op.worker)} ${call(op)} on ${plain(op.session)}, ${seconds(found, op.from)} → ` +
  `${op.to === null ? "never came back" : seconds(found, op.to)}, ${op.outcome}`;
