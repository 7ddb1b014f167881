"use strict";

// Every value that comes from outside becomes text, never markup: names of tenants are chosen by
// strangers.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

// set changes a text only where it differs, so that what a reader has selected stays selected.
function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function element(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function shape(name, attributes, text) {
  const e = document.createElementNS(SVG, name);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  if (text !== undefined) e.textContent = text;
  return e;
}

// call is fetch with a field that a page of another origin cannot send, so that regiond knows whose request it is.
function call(path, options = {}) {
  return fetch(path, { ...options, headers: { "X-Requested-With": "regiond", ...options.headers } });
}

const number = (n) => n.toLocaleString("en", { maximumFractionDigits: 1 });
const percent = (p) => (p * 100).toLocaleString("en", { maximumFractionDigits: 1 }) + " %";
const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

// age is how long ago something was, in milliseconds; below 0 it never was.
function age(ms) {
  if (ms === undefined || ms < 0) return "never";
  if (ms < 1000) return "just now";
  if (ms < 120000) return Math.floor(ms / 1000) + " s ago";
  return Math.floor(ms / 60000) + " min ago";
}

function span(ms) {
  if (ms % 3600000 === 0) return ms === 3600000 ? "hour" : ms / 3600000 + " hours";
  if (ms % 60000 === 0) return ms === 60000 ? "minute" : ms / 60000 + " minutes";
  if (ms % 1000 === 0) return ms === 1000 ? "second" : ms / 1000 + " seconds";
  return ms + " ms";
}

// allows says what a limit admits: "100 in a minute", "100 in 2 seconds", "100 per month".
function allows(units, { calendar, window_ms: ms }) {
  if (calendar) return number(units) + " per " + calendar;
  return number(units) + (ms ? " in " + (/^\d/.test(span(ms)) ? "" : "a ") + span(ms) : "");
}

// countdown is what is left of a time, in milliseconds, between two texts; nothing where that is not known.
function countdown(before, ms, after) {
  if (!(ms > 0)) return "";
  const left = ms < 120000 ? Math.ceil(ms / 1000) + " s" : ms < 48 * 3600000 ? Math.ceil(ms / 60000) + " min" : Math.ceil(ms / 86400000) + " days";
  return before + left + " left" + after;
}

const modes = {
  global: ["good", "sees all others"],
  partitioned: ["warn", "on its own share"],
  joining: ["warn", "joining"],
  stale: ["warn", "sees old figures"],
  local: ["bad", "Redis away"],
};

const reasons = {
  peer_silent: "another region is silent",
  one_way: "another region does not receive our messages",
  views_differ: "regions disagree about who is there",
  joining: "it is learning what the others have used",
  process_paused: "this process did not run for a moment",
  redis_timeout: "Redis does not answer in time",
  redis_down: "Redis is away",
  redis_refused: "Redis refuses",
  breaker_open: "Redis is away",
  overloaded: "Redis is too busy",
  bound_closed: "its limits with a bound admit nothing yet",
  bound_burnt: "its share counts as used, since its data were lost",
};

function inWords(reason) {
  const [word, about] = reason.split(": ");
  return (reasons[word] || word) + (about ? " (" + about + ")" : "");
}

function pill(mode, text) {
  const e = element("span", "pill", text || mode);
  e.dataset.tone = (modes[mode] || [""])[0];
  return e;
}

// rows makes a table's body have one row for each item, and keeps the rows of those that stay.
function rows(table, items, key, cells) {
  const body = table.tBodies[0];
  const old = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  items.forEach((item, i) => {
    const name = key(item);
    let row = old.get(name);
    old.delete(name);
    if (!row) {
      row = element("tr");
      row.dataset.key = name;
    }
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] || null);
    cells(item).forEach((cell, j) => {
      let td = row.cells[j];
      if (!td) {
        td = row.appendChild(element(j === 0 ? "th" : "td", cell.className || ""));
        if (j === 0) td.scope = "row";
        if (cell.label) td.dataset.label = cell.label;
      }
      if (cell.mark !== undefined) {
        if (td.dataset.mark !== cell.mark) {
          td.dataset.mark = cell.mark;
          td.replaceChildren(cell.node());
        }
      } else set(td, cell.text);
    });
  });
  for (const row of old.values()) row.remove();
}

// The demo.

function meter(id, title, text) {
  const box = element("div", "meter");
  box.id = id;
  box.append(element("h3", "", title), element("p", "figure"), shape("svg", { role: "img", class: "bar" }), element("p", "legend parts"), element("div", "line"), element("p", "quiet", text));
  $("meters").append(box);
  return box;
}

// stripes is the pattern of a region's colour, so that the colours are told apart by who cannot see them.
const stripes = (i) => (i % 3 === 0 ? "none" : "url(#p" + (i % 3) + ")");

function drawMeter(box, parts, names, limit, most) {
  const total = parts.reduce((a, b) => a + b, 0);
  const figure = box.querySelector(".figure");
  const value = element("span", total > limit ? "exceeded" : "", number(total));
  figure.replaceChildren(value, element("small", "", " of " + number(limit) + " now, peak " + number(most)));
  const svg = box.querySelector("svg");
  svg.setAttribute("aria-label", parts.map((n, i) => names[i] + " " + n).join(", ") + ", together " + total + " of " + limit);
  const width = svg.clientWidth || 400;
  const scale = width / (limit * 1.5);
  const legend = box.querySelector(".parts");
  if (!svg.firstChild) {
    svg.append(shape("rect", { class: "track", x: 0, y: 8, height: 20, rx: 4 }));
    parts.forEach((_, i) => {
      svg.append(shape("rect", { class: "r" + i, y: 8, height: 20 }), shape("rect", { fill: stripes(i), y: 8, height: 20 }));
      legend.append(element("span", "key k" + i), element("span", "part"));
    });
    svg.append(shape("line", { class: "limit", y1: 2, y2: 34 }), shape("text", { y: 43, "text-anchor": "middle" }));
  }
  svg.setAttribute("viewBox", "0 0 " + width + " 44");
  svg.children[0].setAttribute("width", width);
  let x = 0;
  parts.forEach((n, i) => {
    const w = Math.min(n * scale, Math.max(0, width - x));
    for (const r of [svg.children[2 * i + 1], svg.children[2 * i + 2]]) {
      r.setAttribute("x", x);
      r.setAttribute("width", Math.max(0, w - (w > 2 ? 1 : 0)));
    }
    set(legend.children[2 * i + 1], names[i] + " " + number(n));
    x += w;
  });
  const line = svg.querySelector("line");
  line.setAttribute("x1", limit * scale);
  line.setAttribute("x2", limit * scale);
  const label = svg.querySelector("text");
  label.setAttribute("x", limit * scale);
  set(label, "limit " + number(limit));
}

// A line is what was used of a limit in its window, second by second: {key: Map(second → {used, limit, ceiling, denied})}.
const lines = new Map();
const lineSeconds = 120;

// addPoint notes the newest second of a line.
function addPoint(key, at, point) {
  const points = lines.get(key) || new Map();
  lines.set(key, points);
  const second = Math.floor(at / 1000);
  points.set(second, point);
  for (const old of points.keys()) if (old <= second - lineSeconds || old > second) points.delete(old);
}

// drawLine draws what is known of a line, which grows until it is two minutes long. Above is what was used, with the limit and
// this region's ceiling; below are marks of denials.
function drawLine(box, key, what) {
  const points = [...(lines.get(key) || new Map())].sort(([a], [b]) => a - b);
  if (points.length === 0 || !box.clientWidth) return;
  const width = box.clientWidth, height = 132, bottom = height - 30;
  const last = points[points.length - 1][0], spread = Math.max(30, last - points[0][0]);
  const newest = points[points.length - 1][1];
  const most = Math.max(newest.limit * 1.2, ...points.map(([, p]) => Math.max(p.used, p.limit)));
  const x = (second) => (left + (width - left - 2) * (1 - (last - second) / spread)).toFixed(1);
  const y = (v) => (bottom - (v / most) * (bottom - 8)).toFixed(1);
  const path = (value) => points.filter(([, p]) => p[value] !== undefined).map(([second, p], i) => (i ? "L" : "M") + x(second) + " " + y(p[value])).join("");
  const svg = shape("svg", { viewBox: "0 0 " + width + " " + height, role: "img" });
  const denied = points.reduce((sum, [, p]) => sum + p.denied, 0), peak = Math.max(...points.map(([, p]) => p.used));
  svg.setAttribute("aria-label", what + " in the last " + (last - points[0][0] + 1) + " seconds: used " + number(newest.used) + " now, peak " + number(peak) + ", limit " + number(newest.limit) + ", " + number(denied) + " denied");
  svg.append(shape("line", { class: "grid", x1: left, x2: width, y1: bottom, y2: bottom }), shape("text", { x: left - 8, y: bottom, "text-anchor": "end" }, "0"));
  svg.append(shape("path", { class: "top", d: path("limit") }), shape("text", { x: left - 8, y: Number(y(newest.limit)) + 4, "text-anchor": "end" }, number(newest.limit)));
  if (newest.ceiling !== undefined) svg.append(shape("path", { class: "ceiling", d: path("ceiling") }));
  svg.append(shape("path", { class: "used", d: path("used") }));
  let marks = "";
  for (const [second, p] of points) if (p.denied > 0) marks += "M" + x(second) + " " + (bottom + 3) + "V" + (bottom + 3 + Math.min(10, 3 + p.denied));
  if (marks) svg.append(shape("path", { class: "denial", d: marks }));
  svg.append(shape("text", { x: left, y: height - 3 }, (last - points[0][0] >= 30 ? last - points[0][0] : 30) + " s ago"), shape("text", { x: width - 2, y: height - 3, "text-anchor": "end" }, "now"));
  box.replaceChildren(svg);
}

// control works one of the demo's controls, and reports whether it did.
async function control(path) {
  set($("demo-error"), "");
  try {
    const answer = await call("/demo/" + path, { method: "POST" });
    if (!answer.ok) set($("demo-error"), "That did not work: status " + answer.status + ".");
    return answer.ok;
  } catch {
    set($("demo-error"), "The demo does not answer. Does it still run?");
    return false;
  }
}

let demandAt = 0; // when the slider was moved last

function buildSite(region, i) {
  const box = element("article", "site");
  box.id = "site-" + region;
  const head = element("div", "head"), name = element("h3");
  name.append(element("span", "key k" + (i % 3)), document.createTextNode(region));
  head.append(name, element("span", "pill mode"));
  box.append(head, element("p", "why"));
  for (const [kind, title] of [["estimated", "Estimated"], ["strict", "Strict"]]) {
    const part = element("div", "holding " + kind);
    part.append(element("h4", "", title), element("p", "asked"), shape("svg", { role: "img", class: "bar" }), element("p", "terms"));
    box.append(part);
  }
  const toggle = element("button", "cut");
  toggle.type = "button";
  toggle.addEventListener("click", async () => {
    const verb = toggle.className; // what it does now
    toggle.disabled = true; // until it is done
    await control(verb + "/" + encodeURIComponent(region));
    toggle.disabled = false;
    toggle.focus();
  });
  box.append(toggle);
  $("sites").append(box);
  return box;
}

// drawHolding draws what a region may use of a limit on the scale of all of it: what is its own, borrowed, and lent, and what it used.
function drawHolding(part, { limit, own, borrowed, lent, used, may, terms, asked }) {
  set(part.querySelector(".asked"), number(asked.allowed) + " allowed, " + number(asked.denied) + " denied a second");
  set(part.querySelector(".terms"), terms);
  const svg = part.querySelector("svg");
  const width = svg.clientWidth || 240, scale = width / Math.max(limit, own + borrowed + lent, used);
  if (!svg.firstChild) {
    for (const name of ["track", "own", "own", "borrowed", "lent", "used"]) svg.append(shape("rect", { class: name, y: name === "used" ? 6 : 2, height: name === "used" ? 6 : 14 }));
    svg.children[3].setAttribute("fill", "url(#p1)");
    svg.append(shape("line", { class: "limit", y1: 0, y2: 18 }));
  }
  svg.setAttribute("viewBox", "0 0 " + width + " 18");
  svg.setAttribute("aria-label", terms);
  const spans = [[0, width / scale], [0, own], [own, borrowed], [own, borrowed], [own + borrowed, lent], [0, used]];
  spans.forEach(([from, units], i) => {
    svg.children[i].setAttribute("x", from * scale);
    svg.children[i].setAttribute("width", Math.max(0, units * scale));
  });
  const at = Math.min(Math.max(may * scale, 1), width - 1); // its ceiling
  svg.children[6].setAttribute("x1", at);
  svg.children[6].setAttribute("x2", at);
}

// usedOf says in words how what was used stands to what may be used: what was admitted under a higher ceiling stays in the window.
function usedOf(used, may) {
  if (used <= may) return "used " + number(used) + " of the " + number(may) + " it may use now";
  return "used " + number(used) + " while it might; it may use " + number(may) + " now, so it admits nothing until " + (used - may === 1 ? "1 unit has" : number(used - may) + " units have") + " left the window";
}

function drawSite(site, i, demo) {
  const box = $("site-" + site.region) || buildSite(site.region, i);
  box.dataset.cut = site.cut ? "yes" : "no";
  box.dataset.mode = site.mode;
  const mode = box.querySelector(".mode");
  const b = site.bound, shut = b && (b.binds === "closed" || b.binds === "burnt");
  mode.dataset.tone = site.cut ? "bad" : shut ? "warn" : (modes[site.mode] || [""])[0];
  set(mode, site.cut && site.mode === "global" ? "cut off" : shut && site.mode === "global" ? (b.binds === "closed" ? "strict limit closed" : "share counts as used") + countdown(", ", b.burnt_ms, "") : site.mode);
  set(box.querySelector(".why"), why(site, demo));
  const limit = site.units || demo.units;
  drawHolding(box.querySelector(".estimated"), {
    limit, own: site.ceiling, borrowed: 0, lent: 0, used: site.used, may: site.ceiling, asked: site.asked,
    terms: usedOf(site.used, site.ceiling) + "; the limit is " + number(limit),
  });
  const strict = { limit: demo.units, own: 0, borrowed: 0, lent: 0, used: site.strict, may: 0, terms: "used " + number(site.strict), asked: site.strict_asked };
  if (b) {
    strict.own = b.binds === "share" || b.binds === "estimate" ? Math.max(0, b.share - b.lent) : 0;
    strict.borrowed = b.binds === "closed" ? 0 : Math.max(0, b.borrowed - b.recalled);
    strict.lent = b.lent;
    strict.may = strict.own + strict.borrowed;
    strict.terms = (shut ? "used " + number(site.strict) + (b.binds === "closed" ? "; admits nothing yet" : "; may use what it borrowed") : usedOf(site.strict, strict.may)) +
      ": share " + number(b.share) + ", lent " + number(b.lent) + ", borrowed " + number(b.borrowed) + (b.recalled ? ", of which " + number(b.recalled) + " go back" : "");
  }
  drawHolding(box.querySelector(".strict"), strict);
  box.querySelector(".strict").dataset.tone = shut ? "warn" : "";
  const toggle = box.querySelector("button");
  toggle.className = site.cut ? "heal" : "cut";
  set(toggle, site.cut ? "Heal" : "Cut off");
  toggle.setAttribute("aria-label", (site.cut ? "Heal " : "Cut off ") + site.region);
}

// why is one sentence about what a region does now.
function why(site, demo) {
  if (site.cut) return "Cut off. It still answers at once, but gives out only its own share of the limit.";
  const b = site.bound;
  if (b && b.binds === "closed") return "Its strict limit admits nothing yet.";
  if (b && b.binds === "burnt") return "It lost its data, so what it had admitted is not known, and its own share of the strict limit counts as used" + countdown(" (", b.burnt_ms, ")") + ". Until then it admits only what the others lend it.";
  if (site.mode === "global") return "Knows what the others use, and subtracts it.";
  if (site.mode === "joining") return "Catches up with what the others have used meanwhile.";
  if (demo.cut.length > 0) return "Receives nothing from " + demo.cut.join(" and ") + ", so it leaves that share unused.";
  return "Waits until it is sure of the others again.";
}

function drawDemo(demo) {
  $("demo").hidden = !demo;
  if (!demo) return;
  set($("demo-text"), "Three regions on this machine share one limit: " + number(demo.units) + " requests in any " + span(demo.window_ms) +
    ", wherever they arrive. " + (demo.quiet ? "The demo makes no traffic now (--quiet)." : "The demo sends the same requests under both limits. Raise the demand, cut a region off, watch the shares, and heal it."));
  const names = demo.regions.map((r) => r.region);
  const estimated = $("meter-estimated") || meter("meter-estimated", "Estimated", "The default: each region subtracts what it knows of the others. It may go a little over while messages travel, and after a cut.");
  const strict = $("meter-strict") || meter("meter-strict", "Strict", "");
  set(strict.querySelector("p.quiet"), "max_overshoot: 0%. Never over, whatever fails: each region spends its own share, and borrows what others do not need.");
  drawMeter(estimated, demo.regions.map((r) => r.used), names, Math.max(...demo.regions.map((r) => r.units || demo.units)), demo.most.estimated);
  drawMeter(strict, demo.regions.map((r) => r.strict), names, demo.units, demo.most.strict);
  overrideOf = demo;
  const slider = $("demand");
  slider.max = demo.max_demand;
  slider.disabled = demo.quiet;
  if (Date.now() - demandAt > 2000) {
    slider.value = demo.demand;
    drawDemand();
  }
  demo.regions.forEach((site, i) => drawSite(site, i, demo));
  const sum = (of) => demo.regions.reduce((all, r) => all + (of(r) || 0), 0);
  const limits = demo.regions.map((r) => r.units || demo.units);
  set($("override-text"), new Set(limits).size === 1 ? "The estimated limit is " + number(limits[0]) + " in all regions." : "The estimated limit is " + demo.regions.map((r, i) => number(limits[i]) + " in " + r.region).join(", ") + ".");
  addPoint("estimated", lastAt, { used: sum((r) => r.used), limit: Math.max(...limits), denied: sum((r) => r.asked.denied) });
  addPoint("strict", lastAt, { used: sum((r) => r.strict), limit: demo.units, denied: sum((r) => r.strict_asked.denied) });
  drawLine(estimated.querySelector(".line"), "estimated", "The estimated limit");
  drawLine(strict.querySelector(".line"), "strict", "The strict limit");
}

let overrideOf = null; // the state of the demo

// override has this process give the demo's tenant other units, in all regions; null gives it those of the configuration.
async function override(units) {
  const path = "/v1/overrides/" + encodeURIComponent(overrideOf.tenant);
  const body = JSON.stringify({ limits: { [overrideOf.limit]: units }, reason: "the demo's page" });
  try {
    const answer = await call(path, units ? { method: "PUT", body, headers: { "Content-Type": "application/json" } } : { method: "DELETE" });
    set($("demo-error"), answer.ok || answer.status === 404 ? "" : "The limit was not changed: status " + answer.status + ".");
  } catch {
    set($("demo-error"), "The demo does not answer. Does it still run?");
  }
}

$("double").addEventListener("click", () => override(2 * overrideOf.units));
$("undouble").addEventListener("click", () => override(null));

function drawDemand() {
  set($("demand-value"), $("demand").value + " requests a second under each limit");
}

$("demand").addEventListener("input", () => {
  demandAt = Date.now();
  drawDemand();
});
$("demand").addEventListener("change", () => control("demand/" + $("demand").value));

// The timeline.

let lastAt = 0; // of the newest state
let timeline = null; // {step, every, points, policies: Map(name → Map(step → {allowed, denied, overshoot}))}
let cursor = null; // the step that is read out

function takeHistory(h) {
  timeline = { step: h.step_ms, every: h.every_ms, points: h.points, policies: new Map() };
  lastAt = h.step_ms + h.every_ms; // until the first state
  for (const p of h.policies || []) {
    const steps = new Map();
    p.allowed.forEach((allowed, i) => {
      steps.set(h.step_ms - (p.allowed.length - 1 - i) * h.every_ms, { allowed, denied: p.denied[i], overshoot: p.overshoot[i] });
    });
    timeline.policies.set(p.name, steps);
  }
}

function takePoint(state) {
  if (!timeline) return;
  timeline.step = state.step_ms;
  const names = new Set((state.policies || []).map((p) => p.name));
  for (const name of timeline.policies.keys()) if (!names.has(name)) timeline.policies.delete(name);
  for (const p of state.policies || []) {
    if (!timeline.policies.has(p.name)) timeline.policies.set(p.name, new Map());
    const steps = timeline.policies.get(p.name);
    steps.set(state.step_ms, p);
    for (const at of steps.keys()) if (at <= timeline.step - timeline.points * timeline.every) steps.delete(at);
  }
}

const everyPolicy = "";

// pointAt adds up the chosen policies in a step; null before this process started.
function pointAt(at) {
  const chosen = $("policy").value;
  let sum = null;
  for (const [name, steps] of timeline.policies) {
    const p = steps.get(at);
    if (!p || (chosen !== everyPolicy && chosen !== name)) continue;
    sum ||= { allowed: 0, denied: 0, overshoot: null };
    sum.allowed += p.allowed;
    sum.denied += p.denied;
    if (p.overshoot !== null) sum.overshoot = Math.max(sum.overshoot || 0, p.overshoot);
  }
  return sum;
}

function drawPolicies() {
  const select = $("policy");
  const names = [...timeline.policies.keys()];
  if ([...select.options].slice(1).map((o) => o.value).join() === names.join() && select.options.length > 0) return;
  const chosen = select.value;
  select.replaceChildren(new Option("all", everyPolicy), ...names.map((name) => new Option(name, name)));
  select.value = names.includes(chosen) ? chosen : everyPolicy;
}

// roof is the round number that a chart ends at.
function roof(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= value);
}

const left = 44;

// chart draws the stacks of a chart; each is [class, height] in the chart's unit.
function chart(box, highest, label, stacks, axis) {
  const width = box.clientWidth, height = box.clientHeight, bottom = axis ? height - 20 : height - 8;
  const svg = shape("svg", { viewBox: "0 0 " + width + " " + height, "aria-hidden": "true" });
  const y = (v) => bottom - (v / highest) * (bottom - 10);
  for (const v of axis ? [0, highest / 2, highest] : [0, highest]) {
    svg.append(shape("line", { class: "grid", x1: left, x2: width, y1: y(v), y2: y(v) }));
    svg.append(shape("text", { x: left - 8, y: y(v) + 4, "text-anchor": "end" }, label(v)));
  }
  const steps = shown(), first = timeline.step - (steps - 1) * timeline.every;
  const wide = (width - left) / steps;
  const x = (at) => left + ((at - first) / timeline.every) * wide;
  const paths = {};
  for (let at = first; at <= timeline.step; at += timeline.every) {
    let floor = 0;
    for (const [name, value] of stacks(at)) {
      if (value > 0) {
        const top = Math.min(floor + value, highest);
        const from = x(at).toFixed(1), to = (x(at) + Math.max(wide - 0.7, 1)).toFixed(1);
        paths[name] = (paths[name] || "") + "M" + from + " " + y(floor).toFixed(1) + "H" + to + "V" + y(top).toFixed(1) + "H" + from + "Z";
        floor = top;
      }
    }
  }
  for (const name in paths) svg.append(shape("path", { class: name, d: paths[name] }));
  if (axis) {
    const whole = (steps * timeline.every) / 60000; // minutes
    for (let minutes = 0; minutes <= whole; minutes += whole <= 3 ? 1 : 5) {
      const at = left + (width - left) * (1 - minutes / whole);
      if (minutes > 0 && width < 480 && minutes + 5 <= whole) continue;
      svg.append(shape("text", { x: at, y: height - 4, "text-anchor": minutes === 0 ? "end" : at < left + 40 ? "start" : "middle" }, minutes === 0 ? "now" : minutes + " min ago"));
    }
  }
  if (cursor !== null && cursor >= first) {
    const at = x(cursor) + wide / 2;
    svg.append(shape("line", { class: "cursor", x1: at, x2: at, y1: 8, y2: bottom }));
  }
  box.replaceChildren(svg);
}

// A step that is not over has seen only a part of its requests.
const seconds = (at) => (at === timeline.step ? Math.max(1, (lastAt - at) / 1000) : timeline.every / 1000);

// shown is how many steps a chart has: those since this process started, a minute at least.
function shown() {
  let oldest = timeline.step;
  for (const steps of timeline.policies.values()) for (const at of steps.keys()) oldest = Math.min(oldest, at);
  return Math.min(timeline.points, Math.max(60000 / timeline.every, (timeline.step - oldest) / timeline.every + 1));
}

function drawTimeline() {
  if (!timeline) return;
  drawPolicies();
  const steps = shown(), first = timeline.step - (steps - 1) * timeline.every;
  const reach = "last " + span(steps * timeline.every >= 120000 ? Math.round((steps * timeline.every) / 60000) * 60000 : 60000);
  set($("timeline-title"), reach[0].toUpperCase() + reach.slice(1));
  let most = 1, over = 0, allowed = 0, denied = 0;
  for (let at = first; at <= timeline.step; at += timeline.every) {
    const p = pointAt(at);
    if (!p) continue;
    most = Math.max(most, (p.allowed + p.denied) / seconds(at));
    over = Math.max(over, p.overshoot || 0);
    allowed += p.allowed;
    denied += p.denied;
  }
  chart($("traffic"), roof(most), number, (at) => {
    const p = pointAt(at);
    return p ? [["allowed", p.allowed / seconds(at)], ["denied", p.denied / seconds(at)]] : [];
  }, true);
  $("traffic").setAttribute("aria-label", "Requests in the " + reach + ": " + number(allowed) + " allowed, " + number(denied) + " denied. Arrow keys read the steps out.");
  chart($("overshoot"), Math.max(0.1, roof(over || 0.1)), percent, (at) => {
    const p = pointAt(at);
    return p && p.overshoot ? [["over", p.overshoot]] : [];
  }, false);
  $("overshoot").setAttribute("aria-label", "Measured overshoot in the " + reach + ": at most " + percent(over));
  const minutes = new Map();
  for (let at = timeline.step; at >= first; at -= timeline.every) {
    const p = pointAt(at);
    if (!p) continue;
    const minute = Math.floor(at / 60000) * 60000;
    const m = minutes.get(minute) || { minute, allowed: 0, denied: 0, overshoot: null };
    m.allowed += p.allowed;
    m.denied += p.denied;
    if (p.overshoot !== null) m.overshoot = Math.max(m.overshoot || 0, p.overshoot);
    minutes.set(minute, m);
  }
  rows($("timeline-table"), [...minutes.values()], (m) => String(m.minute), (m) => [
    { text: clock(m.minute).slice(0, 5) },
    { text: number(m.allowed), className: "n" },
    { text: number(m.denied), className: "n" },
    { text: m.overshoot === null ? "–" : percent(m.overshoot), className: "n" },
  ]);
  const p = cursor === null ? null : pointAt(cursor);
  set($("readout"), cursor === null ? "" : clock(cursor) + ": " + (p
    ? number(p.allowed / seconds(cursor)) + " allowed and " + number(p.denied / seconds(cursor)) + " denied a second" + (p.overshoot === null ? "" : ", overshoot " + percent(p.overshoot))
    : "before this process started"));
}

for (const name of ["traffic", "overshoot"]) {
  $(name).addEventListener("pointermove", (e) => {
    if (!timeline) return;
    const box = $(name).getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (e.clientX - box.left - left) / (box.width - left)));
    cursor = timeline.step - Math.round((1 - part) * (shown() - 1)) * timeline.every;
    drawTimeline();
  });
  $(name).addEventListener("pointerleave", () => {
    cursor = null;
    drawTimeline();
  });
}
$("traffic").addEventListener("keydown", (e) => {
  if (!timeline || !["ArrowLeft", "ArrowRight", "Escape"].includes(e.key)) return;
  e.preventDefault();
  const by = e.key === "ArrowLeft" ? -timeline.every : timeline.every;
  cursor = e.key === "Escape" ? null : Math.min(timeline.step, (cursor === null ? timeline.step - by : cursor) + by);
  drawTimeline();
});
$("policy").addEventListener("change", drawTimeline);
new ResizeObserver(drawTimeline).observe($("traffic"));

// Regions, limits, changes.

function drawRegions(report) {
  const mode = report.mode.mode;
  const about = report.mode.about || [];
  let text = report.region + " is in mode " + mode + ": ";
  const shut = report.bounds || [];
  if (mode === "global") text += "it sees every region" + (shut.length ? "." : ", and global limits hold for all of them together.");
  else text += inWords(report.mode.reason || "") + (about.length ? " (" + about.join(", ") + ")" : "") + ". It uses only the shares of the regions that it sees.";
  if (!report.store.available) text += " Its Redis is away: fail modes answer.";
  set($("mode-text"), text);
  $("bounds-text").hidden = shut.length === 0;
  set($("bounds-text"), shut.map((b) => b.text + countdown(" (", b.left_ms, ")")).join("\n"));
  rows($("regions"), report.regions, (r) => r.name, (r) => {
    const missing = Math.max(0, ...(r.processes || []).map((p) => p.missing_ms));
    const burnt = r.self && shut.length > 0;
    const state = burnt ? (shut.some((b) => b.reason === "bound_closed") ? "admits nothing under a bound" : "its share counts as used") : r.self ? "this region" : r.state;
    return [
      { text: r.name },
      { mark: state, node: () => pill(burnt ? "joining" : r.self || r.counted ? "global" : r.state === "silent" || r.state === "dead" ? "local" : "joining", state) },
      { text: r.self ? "–" : r.counted ? "yes" : "no", label: "counted on" },
      { text: r.self ? "–" : age(r.heard_ms), className: "n", label: "last message" },
      { text: r.self ? "–" : missing > 0 ? "missing for " + number(missing / 1000) + " s" : "complete", className: "n", label: "usage" },
      { text: r.detail || (r.reason ? inWords(r.reason) : ""), className: "name" },
    ];
  });
  set($("self"), report.region + (report.instance ? " / " + report.instance : ""));
  set($("footer"), "regiond " + report.version + ", configuration " + report.config_hash);
}

function drawLimits(limits) {
  $("limits-section").hidden = !limits || limits.length === 0;
  rows($("limits"), limits || [], (l) => l.policy + "." + l.name, (l) => [
    { text: l.policy + " / " + l.name, className: "name" },
    { text: allows(l.units, l) },
    { text: l.max_overshoot ? "over by " + l.max_overshoot + " at most" : "estimated", label: "bound" },
    { text: number(l.share), className: "n", label: "share" },
    { text: l.max_overshoot ? number(l.lent) : "–", className: "n", label: "lent" },
    { text: l.max_overshoot ? number(l.borrowed) : "–", className: "n", label: "borrowed" },
  ]);
}

let changesDrawn = "";

function drawChanges(events) {
  events = events || [];
  $("events-empty").hidden = events.length > 0;
  const mark = JSON.stringify(events);
  if (mark === changesDrawn) return;
  changesDrawn = mark;
  $("events").replaceChildren(...events.map((e) => {
    const li = element("li");
    const when = element("time", "", clock(e.at_ms));
    when.dateTime = new Date(e.at_ms).toISOString();
    li.append(when, element("span", "", e.region + ": " + e.from + " → " + e.to + (e.reason ? ", " + inWords(e.reason) : "")));
    return li;
  }));
}

// Who is ranked.

async function drawTop() {
  if ($("content").hidden || document.hidden) return;
  let report;
  try {
    const answer = await call("/v1/top?limit=10&by=" + $("top-by").value + "&window=" + $("top-window").value);
    if (!answer.ok) return;
    report = await answer.json();
  } catch {
    return; // the stream says that the connection is lost
  }
  $("top-section").hidden = false;
  $("top-notes").replaceChildren(...(report.notes || []).map((n) => element("p", "notice", n)));
  set($("top-empty"), (report.rows || []).length === 0 ? "Nobody." : "");
  rows($("top"), report.rows || [], (r) => JSON.stringify([r.tenant, r.policy, r.limit, r.partition]), (r) => [
    r.tenant ? { mark: r.tenant, node: () => whyButton(r), className: "name" } : { text: "all others", className: "name" },
    { text: r.policy + " / " + r.limit, className: "name" },
    { text: counted(r.partition), className: "name", label: "counted by" },
    { text: r.at_least === r.at_most ? number(r.at_least) : number(r.at_least) + " to " + number(r.at_most), className: "n", label: "units" },
  ]);
}

function whyButton(row) {
  const b = element("button", "plain", row.tenant);
  b.type = "button";
  b.title = "Explain";
  b.addEventListener("click", () => explain(row));
  return b;
}

// A tenant that is looked at: {tenant, policy, dims}; policy is "" for that of the tenant.
let looked = null;

function explain(row) {
  look({ tenant: row.tenant, policy: row.policy, dims: dimensions(row.partition) });
}

$("tenant-form").addEventListener("submit", (e) => {
  e.preventDefault();
  const dims = $("tenant-dims").value.split(",").map((d) => d.trim()).filter(Boolean).map((d) => d.split(/=(.*)/s, 2).map((s) => s.trim()));
  look({ tenant: $("tenant").value, policy: "", dims });
});

async function look(at) {
  looked = at;
  lines.forEach((_, key) => { if (key.startsWith("tenant ")) lines.delete(key); });
  $("why-lines").replaceChildren();
  await drawTenant();
  $("why").hidden = false;
  $("why-title").focus();
}

// drawTenant says what a check of the tenant would get now, and why. It spends nothing.
async function drawTenant() {
  if (!looked) return;
  const at = looked;
  let sentences, limits = [], terms = { limits: [] };
  if (at.dims.some(([, value]) => value === "")) sentences = ["Values beyond max_values share this partition, and which they are is not known."];
  else try {
    const query = new URLSearchParams(at.policy ? { policy: at.policy } : {});
    for (const [name, value] of at.dims) query.set("dim." + name, value);
    const answer = await call("/v1/explain/" + encodeURIComponent(at.tenant) + "?" + query);
    const body = await answer.json();
    if (answer.ok) {
      terms = body.explain;
      limits = body.limits || [];
      sentences = terms.sentences;
    } else sentences = [body.detail, ...(body.errors || []).map((e) => e.pointer + " " + e.detail)];
  } catch {
    sentences = ["regiond does not answer. Try again."];
  }
  if (looked !== at) return; // another is looked at meanwhile
  set($("why-title"), at.tenant + " at " + clock(Date.now()));
  const override = terms.override;
  $("why-override").hidden = !override;
  if (override) set($("why-override"), "Override " + override.version + ": " + override.changes + (override.by ? ", by " + override.by : "") + (override.reason ? ", " + override.reason : "") + (override.expires_at ? ", until " + override.expires_at : "") + ".");
  $("why-limits").hidden = limits.length === 0;
  const known = limits.map((l, i) => ({ l, t: (terms.limits || [])[i] || {}, used: Math.max(0, l.ceiling - l.remaining) }));
  rows($("why-limits"), known, ({ l }) => l.name, ({ l, t, used }) => [
    { text: l.name, className: "name" },
    { text: allows(l.limit, l), label: "allows" },
    { text: number(used), className: "n", label: "used here" },
    { text: l.held === undefined ? "–" : number(l.held), className: "n", label: "held here" },
    { text: (t.peers || []).map((p) => p.region + " " + number(p.estimate) + (p.held ? " and " + number(p.held) + " held" : "")).join(", ") || "–", className: "name", label: "other regions" },
    { text: number(l.ceiling), className: "n", label: "may use here" },
    { text: number(l.remaining), className: "n", label: "left" },
  ]);
  for (const { l, t, used } of known) {
    if (l.scope !== "global") continue;
    const key = "tenant " + l.name;
    const others = (t.peers || []).reduce((all, p) => all + p.estimate, 0);
    addPoint(key, Date.now(), { used: used + others, limit: l.limit, ceiling: l.ceiling, denied: l.remaining === 0 ? 1 : 0 });
    let box = [...$("why-lines").children].find((c) => c.dataset.key === key);
    if (!box) {
      box = element("div", "meter");
      box.dataset.key = key;
      box.append(element("h4", "", l.name + ", in all regions"), element("div", "line"), element("p", "quiet", "Dotted: what this region may use. Marks: nothing is left here."));
      $("why-lines").append(box);
    }
    drawLine(box.querySelector(".line"), key, l.name);
  }
  const text = sentences.join("\n");
  if ($("why-text").dataset.text !== text) {
    $("why-text").dataset.text = text;
    $("why-text").replaceChildren(...sentences.map((line) => element("li", "", line)));
  }
}

setInterval(() => { if (!document.hidden) drawTenant(); }, 1000);

$("why-close").addEventListener("click", () => {
  looked = null;
  $("why").hidden = true;
});

// dimensions are those of a partition such as "user,ip:2.42,-:route=5.login": the names that it is
// counted by, their values behind their lengths, "-" for none, and what the limit asks for. A "#" before all is of tokens.
function dimensions(partition) {
  partition = partition.replace(/^#/, "");
  const dims = [];
  const colon = partition.indexOf(":");
  let rest = partition.slice(colon + 1);
  const take = (name) => {
    if (rest[0] === "-") {
      rest = rest.slice(1);
      return;
    }
    const dot = rest.indexOf("."), end = dot + 1 + Number(rest.slice(0, dot));
    dims.push([name, rest.slice(dot + 1, end)]);
    rest = rest.slice(end);
  };
  for (const name of partition.slice(0, colon).split(",").filter(Boolean)) {
    take(name);
    rest = rest.replace(/^[,:]/, "");
  }
  for (rest = rest.replace(/^:/, ""); rest.includes("="); rest = rest.replace(/^,/, "")) {
    const name = rest.slice(0, rest.indexOf("="));
    rest = rest.slice(name.length + 1);
    take(name);
  }
  return dims;
}

// counted is what a partition is, in words: "user=42", or the tenant as a whole. Hidden values are a hash.
function counted(partition) {
  const [by, values = ""] = partition.replace(/^#/, "").split(/:(.*)/s);
  if (values[0] === "#") return by + " " + values;
  return dimensions(partition).map(([name, value]) => (value === "" ? "all other values of " + name : name + "=" + value)).join(", ") || (by ? "no " + by : "the tenant");
}

for (const id of ["top-by", "top-window"]) $(id).addEventListener("change", drawTop);
setInterval(drawTop, 3000);

// The stream. Not an EventSource, which cannot send header fields.

let stream = null, again = 0, heard = 0;

function live(state, text) {
  $("live").dataset.live = state;
  set($("live-text"), text);
}

const take = {
  history(history) {
    takeHistory(history);
    const first = $("content").hidden;
    $("content").hidden = false;
    $("login").hidden = true;
    $("logout").hidden = localStorage.getItem("session") !== "yes";
    drawTimeline();
    if (first) drawTop();
  },
  state(state) {
    heard = Date.now();
    lastAt = state.at_ms;
    live("yes", "Live");
    takePoint(state);
    drawDemo(state.demo);
    drawTimeline();
    drawRegions(state.regions);
    drawLimits(state.limits);
    drawChanges(state.events);
  },
};

// readEvents takes events until the stream ends.
async function readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ;) {
    const { value, done } = await reader.read().catch(() => ({ done: true })); // the connection was lost
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop(); // has no end yet
    for (const event of events) {
      const fields = new Map(event.split("\n").map((line) => line.split(/: (.*)/s, 2)));
      const name = fields.get("event");
      if (take[name]) take[name](JSON.parse(fields.get("data")));
    }
  }
}

async function connect() {
  clearTimeout(again);
  if (stream) stream.abort();
  const own = stream = new AbortController();
  const answer = await call("/v1/events", { signal: own.signal }).catch(() => ({ status: 0 })); // the process is away
  if (answer.ok) await readEvents(answer.body);
  if (stream !== own) return; // another has its place
  stream = null;
  if (answer.status === 401) {
    live("no", "Not logged in");
    $("content").hidden = true;
    $("logout").hidden = true;
    localStorage.removeItem("session");
    $("login").hidden = false;
    $("token").focus();
    return;
  }
  if (answer.status === 403) {
    live("lost", "This token may not see the page");
    return;
  }
  live("lost", "Connection lost, trying again");
  again = setTimeout(connect, answer.status === 503 ? 5000 : 2000);
}

// A connection can be dead without an end.
setInterval(() => {
  if (stream && heard && Date.now() - heard > 10000) {
    live("lost", "Connection lost, trying again");
    heard = Date.now();
    connect();
  }
}, 2000);

$("login-form").addEventListener("submit", async (e) => {
  e.preventDefault();
  set($("login-error"), "");
  try {
    const answer = await call("/session", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token: $("token").value }),
    });
    if (answer.ok) {
      $("token").value = "";
      localStorage.setItem("session", "yes");
      connect();
      return;
    }
    const problem = await answer.json();
    set($("login-error"), "Not logged in: " + problem.detail + ".");
  } catch {
    set($("login-error"), "regiond does not answer. Try again.");
  }
});

$("logout").addEventListener("click", async () => {
  await call("/session", { method: "DELETE" });
  connect();
});
connect();
