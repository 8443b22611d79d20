"use strict";
(() => {
const { top: up, state, about } = document.currentScript.dataset;
const box = document.getElementById("q");
const found = document.getElementById("found");
const MOST = 100;      // results of a kind
const SHORTEST = 3;    // characters of a part's name
const MOST_FOLDED = 100000;
const files = new Map();   // name -> { done, promise }

/* Data comes as scripts that call this, since a page from a disk may not load anything else. */
window.nodevet = (name, data) => files.get(name)?.done(data);
function load(name) {
  if (!files.has(name)) {
    const file = {};
    file.promise = new Promise((done, failed) => {
      const script = document.createElement("script");
      Object.assign(file, { done });
      script.onerror = () => { files.delete(name); failed(); };
      script.src = `${up}data/${name}.js`;
      document.head.append(script);
    });
    files.set(name, file);
  }
  return files.get(name).promise;
}
/* Elements are made from text alone: nothing of a host is ever parsed as HTML. */
function make(tag, className, ...content) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...content);
  return element;
}
function link(path, text) {
  const element = make("a", "", text);
  element.href = up + path;
  return element;
}
const fileOf = ([name, , , page]) => `hosts/${page || name}.html`;

/* gpu[001-003,7] as the names in it; null if it is no nodeset */
function expand(word) {
  const parts = word.match(/^([^[\]]*)\[([0-9,-]+)\]([^[\]]*)$/);
  if (!parts) return null;
  const names = new Set();
  for (const range of parts[2].split(",")) {
    const [first, last = first] = range.split("-");
    for (let number = +first; number <= +last && names.size < MOST_FOLDED; number += 1)
      names.add((parts[1] + String(number).padStart(first.length, "0") + parts[3]).toLowerCase());
  }
  return names;
}
function matcher(words) {
  const tests = words.map((word) => {
    const names = expand(word);
    return names ? (name) => names.has(name) : (name, text) => text.includes(word);
  });
  return (name, text) => tests.every((test) => test(name, text));
}
async function hostsOf(words) {
  const data = await load("hosts");
  const matches = matcher(words);
  return data.hosts.filter(([name, word, groups]) => {
    const host = name.toLowerCase();
    return matches(host, `${host} ${data.words[word]} ${data.groups[groups]}`.toLowerCase());
  }).map((row) => make("li", "", link(fileOf(row), row[0]), make("span", "quiet", ` ${data.words[row[1]]}`)));
}
async function partsOf(text) {
  if (text.length < SHORTEST) return [];
  const portions = await load("parts");
  const last = text + "\u{10ffff}";
  const near = portions.filter(([first], place) => first <= last && (portions[place + 1]?.[0] ?? last) >= text);
  const rows = (await Promise.all(near.slice(0, 4).map(([, name]) => load(name)))).flat();
  return rows.filter(([name]) => name.startsWith(text)).map(([, id, host, page]) =>
    make("li", "", link(page, id), make("span", "quiet", ` ${host}`)));
}
let asked = 0;
async function search() {
  const text = box.value.trim().toLowerCase();
  const own = asked += 1;
  found.hidden = !text;
  found.setAttribute("aria-busy", Boolean(text));
  if (!text) return found.replaceChildren();
  const lists = await Promise.all([hostsOf(text.split(/\s+/)), partsOf(text)]).catch(() => null);
  if (own !== asked) return;
  found.setAttribute("aria-busy", false);
  if (!lists) return found.replaceChildren(make("p", "", "The site was just written again: reload this page."));
  found.replaceChildren(...lists.flatMap((items, place) => items.length ? [
    make("p", "quiet", `${items.length.toLocaleString("en")} ${place ? "part" : "host"}${items.length === 1 ? "" : "s"}${items.length > MOST ? `, the first ${MOST}:` : ":"}`),
    make("ul", "", ...items.slice(0, MOST)),
  ] : []));
  if (!found.childElementCount) found.replaceChildren(make("p", "", "Nothing has this name, outcome or group."));
}
function readAddress() {
  const text = new URLSearchParams(location.hash.slice(1)).get("q");
  if (text) { box.value = text; search(); }
}
async function showState() {
  const row = (await load(state)).find(([page]) => page === about);
  const line = document.getElementById("state");
  if (!row) return;
  const [, word, at, run, marks] = row;
  line.append(make("span", "", `last visit: ${word}, `, link(run, at)), make("span", "marks", marks));
  line.hidden = false;
}
/* A page cannot tell how old it will be. */
function showAge() {
  const hours = Math.round((Date.now() - Date.parse(about)) / 3600000);
  const line = document.getElementById("state");
  line.append(`the last run began ${hours < 48 ? `${hours} h` : `${Math.round(hours / 24)} days`} ago`);
  line.hidden = hours < 0;
}
box.closest("[hidden]").hidden = false;
box.addEventListener("input", search);
box.addEventListener("keydown", (event) => {
  const first = found.querySelector("a");
  if (event.key === "Escape") { box.value = ""; search(); box.blur(); }
  else if (event.key === "Enter" && found.querySelectorAll("a").length === 1) first.click();
  else if (event.key === "ArrowDown" && first) { first.focus(); event.preventDefault(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/INPUT|TEXTAREA/.test(event.target.tagName)) { box.focus(); event.preventDefault(); }
});
window.addEventListener("hashchange", readAddress);
readAddress();
if (state) showState().catch(() => {});
else if (about) showAge();
})();
