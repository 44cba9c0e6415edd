"use strict";
// -- a sweep: all its trials in one picture, as curves and as parallel coordinates ----------------------------------------
const LESS = /loss|error/i, READS = 6, SHADES = 5;
// What one trial has reported, read from its beginning: what it prints, and its reports, which count more.
class Told {
  constructor(id) { this.id = id; this.curve = new Curve(); this.at = {}; this.rest = {}; this.ended = false; }
  async read(over) {
    if (this.ended) return;
    await this.take((await ask(`/logs?job=${encodeURIComponent(this.id)}`)).files, ["stdout.txt", "metrics.jsonl"]);
    this.ended = over;
  }
  async take(files, names) {
    for (const name of names) {
      const file = files.find(one => one.name === name);
      while (file && (this.at[name] ?? 0) < file.size) await this.piece(name, file.size);
    }
  }
  async piece(name, size) {
    const from = Math.max(this.at[name] ?? 0, size - MOST);
    const got = await fetch(`/log?job=${encodeURIComponent(this.id)}&file=${name}&from=${from}`, {cache: "no-store"});
    const bytes = got.ok ? await got.arrayBuffer() : new ArrayBuffer(0);
    if (!bytes.byteLength) throw new Error(`the log of a trial answers ${got.status}`);
    this.at[name] = from + bytes.byteLength;
    const lines = ((this.rest[name] ?? "") + new TextDecoder().decode(bytes)).split("\n");
    this.rest[name] = lines.pop();
    lines.forEach(line => name === "stdout.txt" ? this.curve.feed(line) : this.curve.report(line));
  }
}
class Sweep {
  constructor(place) { this.place = place; this.told = new Map(); this.metric = ""; }
  async follow(jobs) {
    const trials = jobs.filter(job => job.sweep?.place === this.place);
    const open = trials.filter(job => job.state !== "queued" && !this.of(job).ended).slice(0, READS);
    for (const job of open) await this.of(job).read(OVER.includes(job.state));
    if (sweep === this) this.draw(trials);
  }
  of(job) {
    if (!this.told.has(job.id)) this.told.set(job.id, new Told(job.id));
    return this.told.get(job.id);
  }
  draw(trials) {
    const rows = trials.map(job => ({id: job.id, name: job.name, number: job.sweep.number, point: job.sweep.point, state: job.state, curve: this.of(job).curve.rows()}));
    const metrics = [...new Set(rows.flatMap(row => row.curve.flatMap(one => Object.keys(one))))].filter(name => name !== "epoch");
    const first = ["val_accuracy", "accuracy", "val_loss", "loss"].find(name => metrics.includes(name)) ?? metrics[0] ?? "";
    if (!metrics.includes(this.metric)) this.metric = first;
    const less = LESS.test(this.metric);
    for (const row of rows) {
      row.line = row.curve.filter(one => this.metric in one).map(one => [one.epoch, one[this.metric]]);
      row.best = row.line.length ? (less ? Math.min : Math.max)(...row.line.map(point => point[1])) : null;
    }
    const order = rows.filter(row => row.best !== null).sort((a, b) => less ? a.best - b.best : b.best - a.best);
    order.forEach((row, at) => { row.rank = at; row.shade = order.length > 1 ? Math.round(at / (order.length - 1) * (SHADES - 1)) : 0; });
    const own = this.place.split("/").pop().replace(/\.json$/, "");
    say($("sweep-name"), `Sweep ${own}`);
    say($("sweep-told"), this.sentence(rows, order));
    list($("sweep-metric"), metrics.map(name => [name, name === this.metric]), ([name, now]) => el("option", now ? {selected: ""} : {}, name));
    const drawn = order.map(({name, line, shade, rank, best, point, id}) => ({name, line, shade, rank, best, point, now: id === chosen}));
    list($("sweep-pictures"), drawn.length ? [{kind: "curves", metric: this.metric, drawn}, {kind: "axes", metric: this.metric, drawn}] : [],
      item => item.kind === "curves" ? curvesOfAll(item) : coordinates(item));
    const names = [...new Set(rows.flatMap(row => Object.keys(row.point)))];
    list($("sweep-table"), [["trial", ...names, `best ${this.metric}`, "epochs", "state"], ...rows.sort((a, b) => (a.rank ?? 1e9) - (b.rank ?? 1e9) || a.number - b.number)
      .map(row => [row.name, ...names.map(name => row.point[name] ?? ""), row.best === null ? "" : short(row.best), row.curve.length, row.state])],
      (cells, at) => el("tr", {}, ...cells.map((cell, column) => el(at && column ? "td" : "th", at ? (column ? {} : {scope: "row"}) : {scope: "col"}, String(cell)))));
  }
  sentence(rows, order) {
    const best = order[0], counts = ["running", "queued", "succeeded", "failed"].map(state => [rows.filter(row => row.state === state).length, state]);
    const stand = counts.filter(([count]) => count).map(([count, state]) => `${count} ${state}`).join(", ");
    const point = best ? Object.entries(best.point).map(([name, value]) => `${name} ${value}`).join(", ") : "";
    return `${rows.length} trials here: ${stand}.` + (best ? ` Best ${this.metric}: ${short(best.best)} of ${best.name} (${point}).` : " None has reported yet.");
  }
}
// All curves over the same axes; the stronger, the better; the best and the chosen one are wide.
function curvesOfAll({metric, drawn}) {
  const points = drawn.flatMap(row => row.line).filter(point => Number.isFinite(point[1])), W = 420, H = 200;
  const [x0, x1] = ends(points.map(point => point[0])), [y0, y1] = ends(points.map(point => point[1]));
  const x = value => 44 + (value - x0) / (x1 - x0) * (W - 56), y = value => 10 + (y1 - value) / (y1 - y0) * (H - 36);
  const made = svg("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${metric} by epoch of ${drawn.length} trials; the table below has their best values`});
  made.append(svg("path", {class: "axis", fill: "none", d: `M44 10V${H - 26}H${W - 12}`}),
    svg("text", {x: 40, y: 14, "text-anchor": "end"}, short(y1)), svg("text", {x: 40, y: H - 24, "text-anchor": "end"}, short(y0)),
    svg("text", {x: 44, y: H - 10}, `epoch ${Math.round(x0 * 10) / 10}`), svg("text", {x: W - 12, y: H - 10, "text-anchor": "end"}, String(Math.round(x1 * 10) / 10)));
  for (const row of [...drawn].reverse())
    made.append(titled(svg("polyline", {class: look(row), points: row.line.map(point => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join(" ")}), row, metric));
  return el("figure", {}, el("figcaption", {}, el("strong", {}, `${metric} of all trials`)), made);
}
// One axis for each name and one for the metric; a line for each trial crosses each axis at its value.
function coordinates({metric, drawn}) {
  const names = [...new Set(drawn.flatMap(row => Object.keys(row.point)))], W = Math.max(420, 110 * (names.length + 1)), H = 220;
  const axes = [...names.map(name => axis(name, drawn.map(row => row.point[name]))), axis(metric, drawn.map(row => row.best))];
  const x = at => 40 + at / Math.max(axes.length - 1, 1) * (W - 80), y = part => 30 + (1 - part) * (H - 54);
  const made = svg("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Parallel coordinates of ${names.join(", ")} and ${metric} of ${drawn.length} trials; the table below has the values`});
  const last = at => at && at === axes.length - 1;
  const value = (row, at) => at < names.length ? row.point[names[at]] : row.best;
  for (const row of [...drawn].reverse()) {
    const points = axes.map((one, at) => value(row, at) === undefined ? null : `${x(at).toFixed(1)},${y(one.place(value(row, at))).toFixed(1)}`).filter(Boolean);
    made.append(titled(svg("polyline", {class: look(row), points: points.join(" ")}), row, metric));
  }
  axes.forEach((one, at) => {
    made.append(svg("path", {class: "axis", fill: "none", d: `M${x(at)} 30V${H - 24}`}), svg("text", {x: x(at) + (last(at) ? 12 : 0), y: 14, "text-anchor": last(at) ? "end" : "middle", class: "strong"}, one.name));
    for (const [text, part] of one.marks) made.append(svg("text", {x: x(at) + (last(at) ? 12 : 4), "text-anchor": last(at) ? "end" : "start", y: y(part) + (part === 1 ? -3 : part ? 3 : 13)}, text));
  });
  return el("figure", {}, el("figcaption", {}, el("strong", {}, "Parallel coordinates"), el("span", {class: "soft"}, "the stronger the line, the better; wide: the best and the job above")), made);
}
// Numbers over two orders of magnitude lie on a logarithmic axis; texts stand in order of appearance.
function axis(name, all) {
  const values = all.filter(value => value !== undefined && value !== null);
  if (!values.every(value => typeof value === "number")) {
    const kinds = [...new Set(values.map(String))], part = value => kinds.length > 1 ? kinds.indexOf(String(value)) / (kinds.length - 1) : 0.5;
    return {name, place: part, marks: kinds.slice(0, 8).map(kind => [kind, part(kind)])};
  }
  const low = Math.min(...values), high = Math.max(...values), log = low > 0 && high / low >= 99;
  const by = log ? Math.log : value => value, place = value => high > low ? (by(value) - by(low)) / (by(high) - by(low)) : 0.5;
  return {name, place, marks: high > low ? [[figure(high), 1], [figure(low), 0]] : [[figure(low), 0.5]]};
}
function figure(value) { return String(Number(value.toPrecision(4))); }
function ends(values) { const low = Math.min(...values), high = Math.max(...values); return high > low ? [low, high] : [low - 0.5, high + 0.5]; }
function look(row) { return `trial shade${row.shade}${row.rank === 0 || row.now ? " wide" : ""}`; }
function titled(line, row, metric) { line.append(svg("title", {}, `${row.name}: ${metric} ${short(row.best)}`)); return line; }
