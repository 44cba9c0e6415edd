"use strict";
const $ = id => document.getElementById(id);
const GLYPHS = {running: "▶", idle: "○", preparing: "◌", unusable: "✕", leaving: "↗", queued: "◔", terminating: "◼", succeeded: "✓", failed: "✕"};
const OVER = ["succeeded", "failed"], LINES = 400, MOST = 32 << 20;
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const ANSI = /\x1b\[[0-9;?]*[A-Za-z]/g, NUMBER = "(-?(?:\\d+\\.?\\d*(?:e[-+]?\\d+)?|nan|inf))";
let refused = "", data = null, chosen = null, view = null, sweep = null, shift = 0, before = {}, timer = 0;

// -- elements: everything that comes from outside becomes text, never markup ----------------------------------------
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
function say(node, text) { if (node.textContent !== text) node.textContent = text; }
// Keeps each element whose item has not changed, and never moves the focused one, so that focus and selection stay where they are.
function list(node, items, make) {
  const now = JSON.stringify(items), focused = document.activeElement;
  if (node.shown === now) return;
  node.shown = now;
  const old = [...node.children], held = node.contains(focused) ? focused.dataset.id : null;
  const next = items.map((item, place) => {
    const shown = JSON.stringify(item), at = old.findIndex(one => one.shown === shown);
    return at < 0 ? Object.assign(make(item, place), {shown}) : old.splice(at, 1)[0];
  });
  for (const one of old) one.remove();
  const fixed = next.findIndex(one => one.contains(focused));
  next.forEach((one, at) => {
    if (at < fixed) node.insertBefore(one, next[fixed]); else if (at !== fixed) node.append(one);
  });
  if (held && document.activeElement !== focused) [...node.querySelectorAll("[data-id]")].find(one => one.dataset.id === held)?.focus();
}
function state(name) { return el("span", {class: `state ${name}`}, `${GLYPHS[name] ?? ""} ${name}`); }

// -- time -------------------------------------------------------------------------------------------------------------
function span(seconds) {
  const s = Math.max(0, Math.round(seconds)), two = n => String(n).padStart(2, "0");
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}
function took(job) {
  const now = Date.now() + shift, from = Date.parse(job.started ?? job.created);
  const until = OVER.includes(job.state) && job.ended ? Date.parse(job.ended) : now;
  return job.started || !OVER.includes(job.state) ? span((until - from) / 1000) : "";
}
function clock(text) {
  if (!text) return "–";
  const time = new Date(text), today = time.toDateString() === new Date().toDateString();
  return today ? time.toLocaleTimeString([], {hour12: false}) : time.toLocaleString([], {hour12: false});
}

// -- clusters, queue, jobs --------------------------------------------------------------------------------------------
function cluster(item) {
  const free = item.nodes.filter(node => node.state === "idle").length;
  const nodes = el("ul", {class: item.nodes.length > 24 ? "nodes many" : "nodes", "aria-label": `Nodes of ${item.name}`},
    ...item.nodes.map(node));
  return el("li", {class: "sheet"},
    el("div", {class: "head"}, el("h3", {}, item.name), el("span", {class: "soft"}, `${item.group} / ${item.workspace}`)),
    el("div", {class: "soft"}, `${item.provisioning === "deleting" ? "being deleted" : item.state} · ${item.size}, ${item.priority} · `
      + `${item.nodes.length} of ${item.scale} nodes, ${free} idle`),
    ...item.errors.map(error => el("p", {class: "soft bad"}, error)), nodes);
}
function node(item) {
  const number = item.name.match(/_(\d+)-/)?.[1] ?? "?", doing = item.job ? `runs ${item.job}` : item.why;
  return el("li", {class: `node ${item.state}`, title: [item.name, item.state, doing].filter(Boolean).join("\n")},
    el("b", {}, `node ${number}`), ...(item.job ? [el("span", {class: "word doing", "aria-hidden": "true"}, item.job)] : []), el("span", {"aria-hidden": "true"}, GLYPHS[item.state]),
    el("span", {class: "word"}, ` ${item.state}`), el("span", {class: "sr"}, ` ${item.name} ${item.state} ${doing}`));
}
function waiting(item) {
  return el("li", {class: "sheet"},
    el("div", {class: "head"}, el("h3", {}, `${item.queue}. ${item.name}`),
      el("span", {class: "soft"}, `${item.cluster}, ${item.nodes} node${item.nodes > 1 ? "s" : ""}`)),
    el("div", {class: "soft"}, item.why));
}
function row(item) {
  const button = el("button", {type: "button", "data-id": item.id, "aria-current": item.chosen ? "true" : null},
    el("strong", {}, item.name), state(item.state), el("span", {class: "soft"}, `${item.experiment} on ${item.cluster}`),
    el("span", {class: "soft took"}));
  button.addEventListener("click", () => choose(item.id, true));
  return el("li", {}, button);
}
function empty(text) { return [{nothing: text}]; }
function either(make) { return item => item.nothing ? el("li", {class: "soft"}, item.nothing) : make(item); }

function show() {
  const {service, clusters, jobs} = data, newest = [...jobs].reverse();
  say($("who"), `port ${location.port} · engine ${service.engine} · version ${service.version} · times in ${ZONE}`);
  list($("clusters"), clusters.length ? clusters : empty("No cluster yet."), either(cluster));
  const queue = jobs.filter(job => job.queue).sort((a, b) => a.cluster.localeCompare(b.cluster) || a.queue - b.queue)
    .map(job => ({name: job.name, queue: job.queue, cluster: job.cluster, nodes: job.nodes, why: job.verdict.why}));
  list($("queue"), queue.length ? queue : empty("Nothing waits."), either(waiting));
  if (!jobs.some(job => job.id === chosen)) choose((newest.find(job => job.state === "running") ?? newest[0])?.id ?? null);
  list($("jobs"), newest.length ? newest.map(job => ({id: job.id, name: job.name, state: job.state, experiment: job.experiment,
    cluster: job.cluster, chosen: job.id === chosen})) : empty("No job yet."), either(row));
  const times = Object.fromEntries(jobs.map(job => [job.id, took(job)]));
  for (const button of $("jobs").querySelectorAll("button")) say(button.querySelector(".took"), times[button.dataset.id] ?? "");
  $("more").hidden = !data.jobsLeftOut;
  say($("more"), `${data.jobsLeftOut} older jobs are not shown.`);
  announce(jobs);
  detail(jobs.find(job => job.id === chosen));
}
function announce(jobs) {
  const count = name => jobs.filter(job => job.state === name).length;
  const said = ["running", "queued", "failed"].filter(count).map(name => `${count(name)} ${name}`).join(", ") || "idle";
  const news = jobs.filter(job => before[job.id] && before[job.id] !== job.state).map(job => `${job.name} ${job.state}`);
  before = Object.fromEntries(jobs.map(job => [job.id, job.state]));
  if (news.length || !announce.said || announce.counts !== said) announce.said = [...news, said].join("; ");
  announce.counts = said;
  say($("told"), announce.said);
  document.title = `${said} · batchhvd`;
}

// -- one job ----------------------------------------------------------------------------------------------------------
function choose(id, asked = false) {
  if (id !== chosen) { chosen = id; view = id ? new Log(id) : null; }
  if (!asked) return;
  show();
  if (matchMedia("(max-width: 820px)").matches) { $("detail").scrollIntoView(); $("detail").focus({preventScroll: true}); }
  tick();
}
function detail(job) {
  $("none").hidden = Boolean(job);
  $("sweep").hidden = !job?.sweep;
  if (job?.sweep?.place !== sweep?.place) sweep = job?.sweep ? new Sweep(job.sweep.place) : null;
  $("job").hidden = !job;
  if (!job) return;
  say($("name"), job.name);
  say($("place"), `${job.group} / ${job.workspace} / ${job.experiment}`);
  $("state").className = `state far ${job.state}`;
  say($("state"), `${GLYPHS[job.state] ?? ""} ${job.state}`);
  $("why").className = `why ${job.state}`;
  const {cause, why, evidence, next, tail} = job.verdict;
  list($("why"), [...(cause === job.state ? [] : [cause]), why, ...evidence, ...(next ? [`Next: ${next}`] : [])], text => el("p", {}, text));
  $("tail").hidden = !tail;
  if ($("tail").textContent !== tail) { say($("tail"), tail); $("tail").scrollTop = $("tail").scrollHeight; }
  list($("facts"), [["Nodes", job.nodes], ["Ranks", job.processes], ["Cluster", job.cluster], ["Submitted", clock(job.created)],
    ["Started", clock(job.started)], ["Ended", clock(job.ended)], ["Took", job.started ? took(job) : "–"], ["Exit code", job.exit ?? "–"]],
    ([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value))));
}

// -- the log: read from its beginning in pieces --------------------------------------------------------------------------
class Log {
  constructor(id) { this.id = id; this.file = "stdout.txt"; this.curve = new Curve(); this.rewind(); }
  rewind() { this.at = 0; this.lines = []; this.rest = ""; this.decoder = new TextDecoder(); this.ended = false; }
  async follow(job) {
    if (this.ended) return;
    const over = OVER.includes(job.state), files = await this.files();
    list($("file"), files.map(file => [file.name, file.name === this.file]), ([name, now]) => el("option", now ? {selected: ""} : {}, name));
    const file = files.find(one => one.name === this.file);
    if (file && file.size < this.at) { this.rewind(); if (this.file === "stdout.txt") this.curve = new Curve(); }
    while (file && view === this && this.at < file.size) await this.read(file);
    this.told ??= new Told(this.id);
    this.told.curve = this.curve;
    await this.told.take(files, ["metrics.jsonl"]);
    this.ended = over;
    if (view === this) this.draw(file);
  }
  async files() { return (await ask(`/logs?job=${encodeURIComponent(this.id)}`)).files; }
  async read(file) {
    this.at = Math.max(this.at, file.size - MOST);
    const got = await fetch(`/log?job=${encodeURIComponent(this.id)}&file=${encodeURIComponent(file.name)}&from=${this.at}`, {cache: "no-store"});
    if (!got.ok) throw new Error(`the log answers ${got.status}`);
    const bytes = await got.arrayBuffer();
    if (!bytes.byteLength) throw new Error("the log came empty");
    this.at += bytes.byteLength;
    const lines = (this.rest + this.decoder.decode(bytes, {stream: true})).split("\n");
    this.rest = lines.pop();
    if (this.file === "stdout.txt") lines.forEach(line => this.curve.feed(line));
    this.lines = [...this.lines, ...lines].slice(-LINES);
  }
  draw(file) {
    const log = $("log"), low = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const text = [...this.lines, ...(this.rest ? [this.rest] : [])].map(plain).join("\n");
    say(log, text || (file ? "(empty)" : "Not written yet."));
    if (low || log.dataset.id !== this.id + this.file) log.scrollTop = log.scrollHeight;
    log.dataset.id = this.id + this.file;
    say($("size"), file ? `${this.at.toLocaleString("en")} bytes${this.lines.length >= LINES ? `, the last ${LINES} lines` : ""}` : "");
    this.curve.draw();
  }
}
// What a terminal would show of a line: colours gone, and of a bar that was drawn over itself the last state.
function plain(line) { return line.replace(ANSI, "").split(/[\r\b]+/).filter(part => part.trim()).pop() ?? ""; }

// -- learning curves: from epoch records (JSON lines), Keras' bars and lines, and the trainer's lines -----------------
class Curve {
  constructor() { this.heads = new Map(); this.ends = new Map(); this.sums = new Map(); this.validated = false; }
  feed(line) { line.replace(ANSI, "").split(/[\r\b]+/).forEach(piece => this.piece(piece.trim())); }
  piece(text) {
    if (text.startsWith("{")) return this.record(text);
    const begin = text.match(/^Epoch (\d+)\/\d+$/), own = text.match(/^Epoch (\d+)\/\d+  (.+)$/);
    if (begin) return this.begin(Number(begin[1]));
    if (own) return this.set(Number(own[1]), own[2].matchAll(new RegExp(`(?:^|  )([a-z_]\\w*) ${NUMBER}(?=  |$)`, "g")));
    const bar = text.match(/(?:^|\s)(\d+)\/(\d+)(?![\d/])(?:.*?)( - [A-Za-z_]\w*: .*)$/), short = /^- \d+s( .*)? - /.test(text);
    if ((bar && bar[1] === bar[2]) || short) this.end(bar ? bar[3] : text);
  }
  record(text) {
    let found;
    try { found = JSON.parse(text); } catch { return; }  // other text in braces
    if (Number.isFinite(found.epoch)) this.set(found.epoch, Object.entries(found).filter(pair => typeof pair[1] === "number").map(pair => ["", ...pair]));
  }
  // A line of metrics.jsonl: what it says replaces what was printed of the same name.
  report(text) {
    let found;
    try { found = JSON.parse(text.replace(/\b(NaN|-?Infinity)\b/g, "null")); } catch { return; }
    const epoch = found?.epoch ?? found?.step;
    if (!Number.isFinite(epoch)) return;
    const known = this.sums.get(epoch) ?? {};
    for (const [name, value] of Object.entries(found)) if (Number.isFinite(value) && !NOT_CURVES.has(name)) known[name] = [value, 1];
    this.sums.set(epoch, known);
  }
  // Each rank that draws bars writes a heading. An earlier epoch's means that the job was started again.
  begin(epoch) {
    if (epoch < Math.max(...this.heads.keys())) {
      for (const map of [this.sums, this.ends]) [...map.keys()].filter(key => key >= epoch).forEach(key => map.delete(key));
      this.heads.clear();
    }
    this.heads.set(epoch, (this.heads.get(epoch) ?? 0) + 1);
  }
  // Ranks wait for one another in each step: as long as one has not begun the latest epoch, what ends is the one before.
  // Where there is validation, a bar is full twice, and the second time counts; so do not the bars of a last test.
  end(text) {
    const writers = [...this.heads.values()][0], latest = Math.max(...this.heads.keys());
    if (!writers) return;
    const epoch = this.heads.get(latest) < writers ? latest - 1 : latest, valid = text.includes(" val_");
    if (valid && !this.validated) { this.validated = true; this.sums.clear(); this.ends.clear(); }
    const ends = (this.ends.get(epoch) ?? 0) + 1;
    if ((this.validated && !valid) || ends > 2 * writers) return;
    this.ends.set(epoch, ends);
    this.add(epoch, text.matchAll(new RegExp(`- ([A-Za-z_]\\w*): ${NUMBER}`, "g")));
  }
  set(epoch, pairs) { this.sums.delete(epoch); this.add(epoch, pairs); }
  add(epoch, pairs) {
    const known = this.sums.get(epoch) ?? {};
    for (const [, name, text] of pairs) {
      const key = name.replace(/\bacc$|_acc$/, word => word + "uracy"), value = Number(text);
      if (Number.isFinite(value) && !NOT_CURVES.has(key)) { const [sum, count] = known[key] ?? [0, 0]; known[key] = [sum + value, count + 1]; }
    }
    this.sums.set(epoch, known);
  }
  rows() {
    return [...this.sums].sort((a, b) => a[0] - b[0])
      .map(([epoch, sums]) => ({epoch, ...Object.fromEntries(Object.entries(sums).map(([name, [sum, count]]) => [name, sum / count]))}));
  }
  draw() {
    const rows = this.rows(), names = [...new Set(rows.flatMap(row => Object.keys(row)))].filter(name => name !== "epoch");
    const kinds = [...new Set(names.map(name => name.replace(/^val_/, "")))].sort((a, b) => ORDER(a) - ORDER(b));
    list($("curves"), rows.length ? kinds.map(kind => ({kind, lines: [kind, "val_" + kind].map(name =>
      rows.filter(row => name in row).map(row => [row.epoch, row[name]]))})) : [], panel);
    $("figures").hidden = !rows.length;
    list($("figures").querySelector("table"), rows.length ? [["epoch", ...names], ...rows.map(row => [row.epoch, ...names.map(name => row[name]?.toFixed(4) ?? "")])] : [],
      (cells, at) => el("tr", {}, ...cells.map(cell => el(at ? "td" : "th", at ? {} : {scope: "col"}, String(cell)))));
  }
}
const NOT_CURVES = new Set(["epoch", "step", "seconds", "images", "images_per_second", "learning_rate", "lr", "ranks", "rank"]);
const ORDER = name => ["loss", "accuracy"].indexOf(name) >>> 0;
function svg(tag, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}
function panel({kind, lines}) {
  const points = lines.flat(), xs = points.map(p => p[0]), ys = points.map(p => p[1]), W = 300, H = 140;
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const x = v => 44 + (x1 > x0 ? (v - x0) / (x1 - x0) : 0.5) * (W - 56), y = v => 8 + (y1 > y0 ? (y1 - v) / (y1 - y0) : 0.5) * (H - 34);
  const said = ["training", "validation"].map((word, at) => lines[at].length ? `${word} ${short(lines[at].at(-1)[1])}` : "").filter(Boolean);
  const drawn = svg("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${kind} after epoch ${x1}: ${said.join(", ")}`});
  drawn.append(svg("path", {class: "axis", fill: "none", d: `M44 8V${H - 26}H${W - 12}`}),
    svg("text", {x: 40, y: 12, "text-anchor": "end"}, short(y1)), svg("text", {x: 40, y: H - 24, "text-anchor": "end"}, short(y0)),
    svg("text", {x: 44, y: H - 10}, `epoch ${x0}`), svg("text", {x: W - 12, y: H - 10, "text-anchor": "end"}, String(x1)));
  lines.forEach((line, at) => {
    if (!line.length) return;
    const look = at ? "valid" : "train";
    drawn.append(svg("polyline", {class: look, points: line.map(p => `${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join(" ")}));
    if (line.length < 40) line.forEach(p => drawn.append(svg("circle", {class: `dot ${look}`, cx: x(p[0]).toFixed(1), cy: y(p[1]).toFixed(1), r: 2})));
  });
  const legend = said.map(text => el("span", {class: `key ${text.startsWith("v") ? "valid" : "train"}`}, `${text.startsWith("v") ? "╌" : "—"} ${text}`));
  return el("figure", {}, el("figcaption", {}, el("strong", {}, kind), ...legend), drawn);
}
function short(value) { return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3); }

// -- asking -----------------------------------------------------------------------------------------------------------
class Refused extends Error {}
async function ask(path) {
  const got = await fetch(path, {cache: "no-store"});
  if (got.status === 401) throw new Refused(refused || "No session.");
  if (!got.ok) throw new Error(`the service answers ${got.status}`);
  return got.json();
}
async function tick() {
  clearTimeout(timer);
  if (tick.busy) { tick.again = true; return; }
  tick.busy = true;
  tick.again = false;
  let pause = 3000;
  try {
    data = await ask("/status.json");
    shift = Date.parse(data.service.time) - Date.now();
    $("ask").hidden = true;
    document.querySelector("main").hidden = false;
    show();
    const job = data.jobs.find(one => one.id === chosen);
    if (view && job) await view.follow(job);
    if (sweep) await sweep.follow(data.jobs);
    if (data.jobs.some(one => !OVER.includes(one.state)) || data.clusters.some(one => one.state !== "steady")) pause = 1000;
  } catch (error) {
    if (error instanceof Refused) { pause = 0; need(error.message); }
    else { announce.counts = null; say($("told"), `No answer (${error.message}); asking again.`); }
  }
  tick.busy = false;
  if (tick.again) tick();
  else if (pause && !document.hidden) timer = setTimeout(tick, pause);
}
function need(text) {
  document.querySelector("main").hidden = true;
  $("ask").hidden = false;
  say($("told"), text);
  $("link").focus();
}
// The code leaves the address at once. It was good once: what the history keeps of it opens nothing.
async function begin() {
  const code = location.hash.slice(1);
  if (code) { history.replaceState(null, "", location.pathname); await enter(code); }
  tick();
}
async function enter(code) {
  const got = await fetch("/session", {method: "POST", body: JSON.stringify({code}), cache: "no-store"}).catch(() => null);
  refused = got && !got.ok ? "This link was used already, or is too old." : "";
}
document.querySelector("form").addEventListener("submit", async event => {
  event.preventDefault();
  const text = $("link").value.trim();
  $("link").value = "";
  await enter(text.slice(text.indexOf("#") + 1));
  tick();
});
$("file").addEventListener("change", event => {
  if (!view) return;
  const fresh = new Log(view.id);
  fresh.file = event.target.value;
  if (fresh.file !== "stdout.txt") fresh.curve = view.curve;
  view = fresh;
  tick();
});
$("sweep-metric").addEventListener("change", event => {
  if (!sweep) return;
  sweep.metric = event.target.value;
  sweep.draw(data.jobs.filter(job => job.sweep?.place === sweep.place));
});
$("jobs").addEventListener("keydown", event => {
  const buttons = [...$("jobs").querySelectorAll("button")], at = buttons.indexOf(document.activeElement);
  const to = {ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1}[event.key];
  if (at < 0 || !buttons[to]) return;
  event.preventDefault();
  buttons[to].focus();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && $("ask").hidden) tick(); });
window.addEventListener("hashchange", begin);
begin();
