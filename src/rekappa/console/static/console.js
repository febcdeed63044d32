// Progress, charts and times. Every page works without this.
"use strict";

const pad = (number) => String(number).padStart(2, "0");

// Times in the reader's zone, with UTC beside; in UTC alone where that is the reader's zone.
function localTimes(root) {
  for (const one of root.querySelectorAll("time[datetime]:not([data-done])")) {
    const moment = new Date(one.dateTime);
    one.dataset.done = "1";
    if (Number.isNaN(moment.getTime()) || moment.getTimezoneOffset() === 0) continue;
    const { day, clock } = reading(moment);
    if (one.dataset.shape) {
      one.title = `${one.textContent} UTC`;
      one.textContent = { seconds: clock, minutes: clock.slice(0, 5), days: `${day.slice(5)} ${clock.slice(0, 5)}` }[one.dataset.shape];
      continue;
    }
    const utc = document.createElement("span");
    utc.className = "utc";
    utc.textContent = ` (${one.textContent})`;
    one.textContent = `${day} ${clock}`;
    one.append(utc);
  }
  for (const chart of root.querySelectorAll("svg")) drawnTimes(chart);
  if (new Date().getTimezoneOffset() !== 0) {
    for (const one of root.querySelectorAll(".zone")) one.textContent = "your time";
  }
}

// The times of a chart that has them in its drawing: the same, and a day where it begins in the reader's zone.
function drawnTimes(chart) {
  let last = "";
  for (const one of chart.querySelectorAll("[data-at]:not([data-done])")) {
    const moment = new Date(one.dataset.at), { day, clock } = reading(moment);
    one.dataset.done = "1";
    if (moment.getTimezoneOffset() === 0) continue;
    if (one.dataset.shape === "bar") {
      const title = one.querySelector("title");
      title.textContent = `${day} ${clock} your time\n${title.textContent}`;
      continue;
    }
    one.textContent = { seconds: clock, minutes: clock.slice(0, 5), date: day, "new day": day === last ? "" : day }[one.dataset.shape];
    if (one.dataset.shape === "new day") last = day;
  }
}

function reading(moment) {
  return {
    day: `${moment.getFullYear()}-${pad(moment.getMonth() + 1)}-${pad(moment.getDate())}`,
    clock: `${pad(moment.getHours())}:${pad(moment.getMinutes())}:${pad(moment.getSeconds())}`,
  };
}

// Pointing at a chart tells what it shows there.
function readable(plot) {
  const series = JSON.parse(plot.dataset.series), low = Date.parse(plot.dataset.start), high = Date.parse(plot.dataset.end);
  const told = document.createElement("output");
  told.className = "readout";
  told.hidden = true;
  plot.parentElement.append(told);
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect(), share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.9999);
    const words = series.map((one) => {
      let place = Math.floor(share * one.values.length);
      if (one.at) place = one.at.reduce((best, at, number) => (Math.abs(at - share) < Math.abs(one.at[best] - share) ? number : best), 0);
      return `${one.name} ${(one.values[place] ?? 0).toLocaleString("en")}`;
    });
    const { day, clock } = reading(new Date(low + share * (high - low)));
    told.textContent = `${day} ${clock}   ${words.join("   ")}`;
    told.hidden = false;
    told.classList.toggle("right", share > 0.5);
  });
  plot.addEventListener("pointerleave", () => { told.hidden = true; });
}

// A part of the page that the server sends anew while it changes.
const streams = new Map();
function follow(part) {
  const before = streams.get(part);
  if (before) before.close();
  if (!part.dataset.live) return;
  const stream = new EventSource(part.dataset.live);
  streams.set(part, stream);
  stream.addEventListener("part", (event) => {
    const open = [...part.querySelectorAll("details")].map((one) => one.open);
    const log = part.querySelector("pre.log");
    const atEnd = !log || log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
    const within = part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
    if (within) return;
    part.innerHTML = event.data;
    part.querySelectorAll("details").forEach((one, place) => { if (open[place] !== undefined) one.open = open[place]; });
    localTimes(part);
    part.querySelectorAll("svg[data-series]").forEach(readable);
    const now = part.querySelector("pre.log");
    if (now && atEnd) now.scrollTop = now.scrollHeight;
  });
  stream.addEventListener("go", (event) => { stream.close(); window.location.assign(event.data); });
  stream.addEventListener("over", () => { stream.close(); part.dataset.over = "1"; });
}

// The backfill form: the estimate and the plan follow what is edited; the window is picked on the picture.
function backfill(form) {
  const start = form.elements.namedItem("start"), end = form.elements.namedItem("end");
  const estimate = document.getElementById("estimate"), plan = document.getElementById("plan");
  let waiting = null, last = "";
  const written = () => new URLSearchParams(new FormData(form));
  async function refresh(planToo) {
    const fields = written();
    fields.delete("form_key");
    const answer = await fetch(`${form.dataset.estimate}?${fields}`, { headers: { Accept: "text/html" } });
    if (answer.ok && estimate) { estimate.innerHTML = await answer.text(); localTimes(estimate); }
    if (answer.headers.has("X-No-Window")) return;
    if (!planToo || !plan || !form.dataset.plan || fields.toString() === last) return;
    last = fields.toString();
    const made = await fetch(form.dataset.plan, { method: "POST", body: written(), headers: { Accept: "application/json" } });
    const told = await made.json();
    if (!made.ok) { plan.textContent = told.error; return; }
    plan.dataset.live = told.live;
    follow(plan);
  }
  const changed = () => { clearTimeout(waiting); refresh(false); waiting = setTimeout(() => refresh(true), 900); };
  form.addEventListener("change", changed);
  form.addEventListener("input", (event) => { if (event.target === start || event.target === end) changed(); });
  const minute = 60000;
  const text = (moment) => new Date(Math.round(moment / minute) * minute).toISOString().replace(":00.000Z", "Z");
  for (const chart of document.querySelectorAll("svg.pick")) {
    const low = Date.parse(chart.dataset.start), high = Date.parse(chart.dataset.end), width = chart.viewBox.baseVal.width;
    const moment = (event) => {
      const box = chart.getBoundingClientRect();
      return low + Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * (high - low);
    };
    let from = null;
    const mark = (a, b) => {
      for (const other of document.querySelectorAll("svg.pick")) {
        let shown = other.querySelector("rect.chosen");
        if (!shown) {
          shown = document.createElementNS("http://www.w3.org/2000/svg", "rect");
          shown.setAttribute("class", "chosen"); shown.setAttribute("height", "120");
          other.append(shown);
        }
        const place = (value) => ((value - low) / (high - low)) * width;
        shown.setAttribute("x", place(Math.min(a, b))); shown.setAttribute("width", Math.max(place(Math.max(a, b)) - place(Math.min(a, b)), 1));
      }
    };
    chart.addEventListener("pointerdown", (event) => { from = moment(event); chart.setPointerCapture(event.pointerId); event.preventDefault(); });
    chart.addEventListener("pointermove", (event) => { if (from !== null) mark(from, moment(event)); });
    chart.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const to = moment(event);
      if (Math.abs(to - from) > minute) { start.value = text(Math.min(from, to)); end.value = text(Math.max(from, to)); changed(); }
      from = null;
    });
  }
  refresh(false);
}

localTimes(document);
document.querySelectorAll("svg[data-series]").forEach(readable);
document.querySelectorAll("[data-live]").forEach(follow);
document.querySelectorAll("form[data-estimate]").forEach(backfill);
document.querySelectorAll("pre.log").forEach((one) => { one.scrollTop = one.scrollHeight; });
document.querySelectorAll("input[data-filter]").forEach((box) => {
  const rows = document.querySelectorAll(`${box.dataset.filter} tbody tr`);
  box.addEventListener("input", () => rows.forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(box.value.toLowerCase()); }));
});
window.addEventListener("pagehide", () => streams.forEach((one) => one.close()));
