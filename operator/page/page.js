// SPDX-License-Identifier: Apache-2.0
// page: loads JSON from the operator every two seconds and shows it. Untrusted texts are only ever set as
// textContent, never as HTML.
"use strict";

const EVERY_MS = 2000, SOON_MS = 200, GIVE_UP_MS = 8000, SAMPLES_MAX = 300;
const at = id => document.getElementById(id);

// ---- formats ----------------------------------------------------------------------------------------------

const LEVEL_OF_PHASE = {
  Running: "ok", Completing: "ok", Queued: "busy", Starting: "busy", Waiting: "bad", Restarting: "bad",
  Failed: "bad", Succeeded: "past", Suspended: "past", New: "busy",
};
const levelOf = phase => LEVEL_OF_PHASE[phase] || "busy";

function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 120) return s + " s";
  if (s < 2 * 3600) return Math.floor(s / 60) + " min";
  if (s < 48 * 3600) return Math.floor(s / 3600) + " h";
  return Math.floor(s / 86400) + " d";
}
const took = ms => ms < 10 ? ms.toFixed(1) + " ms" : ms < 1000 ? ms.toFixed(0) + " ms" : (ms / 1000).toFixed(1) + " s";
const clock = ms => new Date(ms).toLocaleTimeString([], {hour12: false});
const ZONE = new Intl.DateTimeFormat("en", {timeZoneName: "short"}).formatToParts()
  .find(part => part.type === "timeZoneName").value;
function moment(ms) {
  const day = new Date(ms).toLocaleDateString("sv");
  return day === new Date().toLocaleDateString("sv") ? clock(ms) : day + " " + clock(ms);
}
function bytesPerS(n) {
  const units = ["B/s", "KB/s", "MB/s", "GB/s", "TB/s"];
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; i++) n /= 1000;
  return n.toFixed(n < 10 && i > 0 ? 1 : 0) + " " + units[i];
}
function memory(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return n.toFixed(i > 0 ? 1 : 0) + " " + units[i];
}
const many = (n, one, more) => n + " " + (n === 1 ? one : more);

// ---- updating the page ------------------------------------------------------------------------------------

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function style(node, name) {
  if (node.className !== name) node.className = name;
}
function show(node, yes) {
  if (node.hidden === yes) node.hidden = !yes;
}

// Keeps the row of a key across updates, so that selected text and links under the pointer stay.
// cells: an array of [text, class, href].
function fill(body, rows) {
  const old = new Map();
  for (const tr of [...body.children]) old.set(tr.dataset.key, tr);
  rows.forEach(({key, cells}, i) => {
    const tr = old.get(key) || document.createElement("tr");
    old.delete(key);
    tr.dataset.key = key;
    cells.forEach(([text, name = "", href], k) => {
      const td = tr.children[k] || tr.appendChild(document.createElement("td"));
      style(td, name);
      if (!href) return put(td, text);
      const a = td.firstElementChild || td.appendChild(document.createElement("a"));
      a.href = href;
      put(a, text);
    });
    if (body.children[i] !== tr) body.insertBefore(tr, body.children[i] || null);
  });
  for (const tr of old.values()) tr.remove();
}

function facts(list, pairs) {
  while (list.children.length > pairs.length) list.lastElementChild.remove();
  pairs.forEach(([name, value], i) => {
    let div = list.children[i];
    if (!div) {
      div = list.appendChild(document.createElement("div"));
      div.append(document.createElement("dt"), document.createElement("dd"));
    }
    put(div.children[0], name);
    put(div.children[1], value);
  });
}

// ---- all jobs ---------------------------------------------------------------------------------------------

const ORDER = {bad: 0, busy: 2, ok: 3, past: 4};
const order = phase => phase === "Failed" ? 1 : ORDER[levelOf(phase)];   // failed jobs after the other bad ones
let wanted = "";   // the phase that is shown, "": all

function chip(phase, count) {
  const b = document.createElement("button");
  b.type = "button";
  b.addEventListener("click", () => { wanted = wanted === phase ? "" : phase; draw(); });
  b.dataset.phase = phase;
  return b;
}
function chips(data) {
  const nav = at("phases"), all = {"": data.total, ...data.phases};
  if (!(wanted in all)) wanted = "";
  for (const b of [...nav.children]) if (!(b.dataset.phase in all)) b.remove();
  for (const [phase, count] of Object.entries(all)) {
    let b = [...nav.children].find(one => one.dataset.phase === phase);
    b = b || nav.appendChild(chip(phase, count));
    put(b, (phase || "All") + " " + count);
    b.setAttribute("aria-pressed", String(wanted === phase));
  }
}

function drawJobs(data, now) {
  const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const has = j => words.every(w => (j.namespace + "/" + j.name + " " + j.message).toLowerCase().includes(w));
  const jobs = data.jobs.filter(j => (!wanted || j.phase === wanted) && has(j));
  jobs.sort((a, b) => order(a.phase) - order(b.phase) || b.created - a.created ||
                      (a.namespace + "/" + a.name < b.namespace + "/" + b.name ? -1 : 1));
  chips(data);
  fill(at("jobrows"), jobs.map(j => ({key: j.namespace + "/" + j.name, cells: [
    [j.namespace + "/" + j.name, "name", "#/" + encodeURIComponent(j.namespace) + "/" + encodeURIComponent(j.name)],
    [j.phase, "phase " + levelOf(j.phase)], [j.ready + " / " + j.workers, "n"],
    [j.min === j.max ? String(j.min) : j.min + " to " + j.max, "n"], [j.epoch ? String(j.epoch) : "", "n"],
    [j.restarts ? String(j.restarts) : "", "n"], [span(now - j.created), "n"], [j.message, "words"]]})));
  const left = data.total - data.jobs.length;
  show(at("jobtable"), jobs.length > 0);
  put(at("jobnote"), data.total === 0 ? "No jobs yet: kubectl apply -f k8s/examples/mnist.yaml" :
    jobs.length === 0 ? "No job matches." :
    left > 0 ? many(left, "more job is", "more jobs are") + " not shown, finished ones first: kubectl get hvdjobs -A" :
      "");
  const trouble = data.jobs.filter(j => levelOf(j.phase) === "bad" && j.phase !== "Failed").length;
  document.title = "hvd: " + many(data.total, "job", "jobs") + (trouble ? ", " + trouble + " with problems" : "");
}

// ---- one job ----------------------------------------------------------------------------------------------

let samples = [];   // throughput of the job that is shown, batches/s

function drawSpeed(roster) {
  show(at("speed"), !!roster);
  if (!roster) return;
  put(at("rate"), roster.batchesPerS.toFixed(1) + " batches/s");
  put(at("bytes"), bytesPerS(roster.bytesPerS));
  const most = Math.max(...samples, 1e-9), last = Math.max(samples.length - 1, 1);
  const points = samples.map((v, i) => (300 * i / last).toFixed(1) + "," + (46 - 44 * v / most).toFixed(1));
  at("line").firstElementChild.setAttribute("points", points.join(" "));
}

function drawFindings(all) {
  const list = at("findings"), more = all.failures + all.warnings - all.list.length;
  const counts = [all.failures && many(all.failures, "failure", "failures"),
                  all.warnings && many(all.warnings, "warning", "warnings")].filter(Boolean);
  put(at("findingcount"), counts.join(", ") + (more > 0 ? "; the first " + all.list.length + " of them" : ""));
  show(at("nofindings"), all.list.length === 0);
  while (list.children.length > all.list.length) list.lastElementChild.remove();
  all.list.forEach((f, i) => {
    let li = list.children[i];
    if (!li) {
      li = list.appendChild(document.createElement("li"));
      li.append(document.createElement("strong"), " ", document.createElement("span"), document.createElement("span"));
      li.lastElementChild.append("Fix: ", document.createElement("code"));
      li.lastElementChild.className = "fix";
    }
    const [strong, text, fix] = li.children;
    style(strong, f.status === "fail" ? "bad" : "busy");
    put(strong, f.code + " " + f.id);
    put(text, f.pod + ": " + f.summary);
    put(fix.lastElementChild, f.fix);
    show(fix, f.fix !== "");
  });
}

function setsOf(m) {
  if (!m.sets) return "";
  return m.descriptorsMax ? m.sets + " (" + m.descriptors + " of " + m.descriptorsMax + ")" : String(m.sets);
}

function memoryOf(m) {
  return m.memoryLimit ? memory(m.segments) + ", " + memory(m.memoryLeft) + " of " + memory(m.memoryLimit) + " left" : "";
}

function gpuOf(m) {
  if (!m.communicators) return "";
  const left = m.gpuMemory ? ", " + memory(m.gpuMemoryLeft) + " of " + memory(m.gpuMemory) + " left" : "";
  return m.communicators + left;
}

function whyOf(m, now) {
  if (m.why || !m.broken) return m.why;
  const more = m.broken > 1 ? ", and " + many(m.broken - 1, "more set is", "more sets are") + " broken" : "";
  return m.brokenSet + ", " + span(now - m.brokenSince) + " ago" + more +
    ": its operations fail until its ranks replace it (hvd_set_remove())";
}

function drawMembers(members, now) {
  put(at("membercount"), members.total === 0 ? "none yet" :
    [members.bad && members.bad + " with problems", members.busy && members.busy + " starting or waiting",
     members.ok && members.ok + " fine"].filter(Boolean).join(", "));
  fill(at("members"), members.list.map(m => ({key: m.pod, cells: [
    [String(m.worker), "n"], [m.state, "state " + m.level], [m.ranks || "", "n"], [m.pod, "where"], [m.node, "where"],
    [m.batches ? m.batches.toLocaleString("en") : "", "n"],
    [m.batches && m.idleMs >= 0 ? span(m.idleMs) : "", "n"], [setsOf(m), "n"], [memoryOf(m), "n"], [gpuOf(m), "n"],
    [span(now - m.created), "n"], [whyOf(m, now), "words"]]})));
  const left = members.total - members.list.length;
  put(at("membernote"), left > 0 ? left + " more are not shown; the ones with problems come first." : "");
}

function drawEpochs(data) {
  show(at("epochtable"), data.epochs.length > 0);
  show(at("noepochs"), data.epochs.length === 0);
  put(at("noepochs"), data.roster || data.leads ? "None yet." : "Only the leader knows the epochs.");
  fill(at("epochs"), data.epochs.map(e => ({key: e.at + "/" + e.epoch, cells: [
    [String(e.epoch), "n"], [moment(e.at), "where"],
    e.first ? ["first", "state"] : e.lost ? ["loss", "state busy"] : ["planned", "state ok"], [String(e.size), "n"],
    [e.first ? "" : took(e.costMs), "n"],
    [e.cause || (e.first ? "the first epoch that this operator saw" : ""), "words"]]})));
}

function drawJob(data, now) {
  const j = data.job, r = data.roster, f = data.firstFailure;
  put(at("phase"), j.deleting ? j.phase + ", being deleted" : j.phase);
  style(at("phase"), "phase " + levelOf(j.phase));
  put(at("message"), j.refused || j.message);
  const waits = r && r.waitingFor && !j.message.includes(r.waitingFor);   // the job's message is updated a moment later
  show(at("waits"), !!waits);
  put(at("waits"), waits ? "The job waits for " + r.waitingFor : "");
  show(at("first"), !!f && !j.message.includes("first failure"));   // else the message has it
  style(at("first"), j.phase === "Failed" ? "bad" : "busy");
  if (f) put(at("first"), "First failure " + moment(f.at) + ": " + (f.rank >= 0 ? "rank " + f.rank + " of " : "") +
             "worker " + f.worker + " (" + f.pod + " on " + f.node + "), " +
             (f.reason || "finished") + ", exit code " + f.exitCode + (f.message ? ": " + f.message : ""));
  facts(at("facts"), [
    ["Workers ready", j.ready + " of " + j.workers],
    ["Min to max", j.elastic ? j.min + " to " + j.max : j.min + ", all or none (not elastic)"],
    ["Ranks", r ? (r.epoch ? r.size : 0) + " of " + r.target : "unknown of " + j.workers * j.slots],
    ["Epoch", String(r && r.epoch || j.epoch || "none yet")],
    ["Workers replaced", j.restarts + (j.attemptsLeft >= 0 && !j.completed ? ", " + j.attemptsLeft + " attempts left" : "")],
    ["Agents", r ? r.agents + " connected" : data.leads ? "none" : "known to the leader only"],
    ["Age", span(now - j.created)],
    j.completed ? ["Ran for", j.started ? span(j.completed - j.started) : "never admitted"]
                : ["Running for", j.started ? span(now - j.started) : "not admitted yet"]]);
  drawSpeed(r);
  drawFindings(data.findings);
  drawMembers(data.members, now);
  drawEpochs(data);
  fill(at("conditions"), data.conditions.map(c => ({key: c.type, cells: [
    [c.type, "where"], [c.status ? "true" : "false"], [moment(c.since), "where"], [c.reason, "where"], [c.message, "words"]]})));
  document.title = j.name + ": " + j.phase;
}

// ---- loading ----------------------------------------------------------------------------------------------

let asked = 0, data = null, etag = "", heard = 0, skew = 0, timer = 0;

// The job of "#/default/mnist"; null: the list of all jobs.
function where() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").map(part => {
    try { return decodeURIComponent(part); } catch { return ""; }
  });
  return parts.length === 2 && parts[0] && parts[1] ? {namespace: parts[0], name: parts[1]} : null;
}

function alarm(text) {
  put(at("alarm"), text);
  show(at("alarm"), text !== "");
}

function draw() {
  const job = where(), now = Date.now() + skew;
  put(at("where"), job ? " / " + job.namespace + " / " + job.name : "");
  show(at("jobs"), !job && !!data);
  show(at("job"), !!job && !!data);
  if (!data) return;
  if (job) drawJob(data, now);
  else drawJobs(data, now);
  put(at("live"), "as of " + clock(heard) + " " + ZONE + (data.leads ? "" : ", from an operator that does not lead"));
}

// 200: new data; 304: unchanged; 503: the operator is busy, so wait for the next time.
async function take(answer, job) {
  if (answer.status === 200) {
    data = await answer.json();
    etag = answer.headers.get("ETag") || "";
  } else if (answer.status === 404 && job) {
    data = null;
    return alarm("There is no job " + job.namespace + "/" + job.name + ".");
  } else if (answer.status !== 304 && answer.status !== 503) {
    return alarm("The operator answers " + answer.status + ": " + (await answer.text()).trim());
  }
  if (answer.status === 503) return;
  if (job && data.roster) samples = [...samples, data.roster.batchesPerS].slice(-SAMPLES_MAX);
  heard = Date.now();
  skew = Date.parse(answer.headers.get("Date")) - heard || 0;
  skew = Math.abs(skew) < 2000 ? 0 : skew;
  alarm("");
}

async function ask() {
  const mine = ++asked, job = where();
  const path = job ? "v1/jobs/" + encodeURIComponent(job.namespace) + "/" + encodeURIComponent(job.name) : "v1/jobs";
  clearTimeout(timer);
  try {
    const answer = await fetch(path, {cache: "no-store", headers: etag ? {"If-None-Match": etag} : {},
                                      signal: AbortSignal.timeout(GIVE_UP_MS)});
    if (mine !== asked) return;
    await take(answer, job);
  } catch {
    if (mine !== asked) return;
    alarm("The operator does not answer" + (heard ? " since " + clock(heard) + "; the page shows its last report." : "."));
  }
  if (mine !== asked) return;
  draw();
  if (!document.hidden) timer = setTimeout(ask, job && data && !data.complete ? SOON_MS : EVERY_MS);
}

function turn() {   // to another job, or back to the list
  data = null;
  etag = "";
  samples = [];
  alarm("");
  for (const id of ["jobrows", "members", "epochs", "conditions", "findings"]) at(id).replaceChildren();
  put(at("live"), "Loading ...");
  draw();
  ask();
}

addEventListener("hashchange", turn);
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
document.addEventListener("DOMContentLoaded", () => {
  at("filter").addEventListener("input", draw);
  turn();
});
