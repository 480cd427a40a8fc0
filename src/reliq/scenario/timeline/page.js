'use strict';
const $ = (css, root = document) => [...root.querySelectorAll(css)];
const picture = document.getElementById('picture');
const width = +picture.dataset.width, first = +picture.dataset.first, last = +picture.dataset.last;
const LABELS = 176, LETTER = 6.3;
const things = $('.plot rect[x], .plot use, .plot text, .badge text').map(el => ({
  el, x: +el.getAttribute('x'), w: el.tagName === 'rect' ? +el.getAttribute('width') : null,
  room: el.classList.contains('in') ? +el.previousElementSibling.getAttribute('width') : null,
  letters: el.textContent.length,
})).filter(thing => !thing.el.closest('.ticks'));
const words = things.filter(thing => thing.el.classList.contains('word')).sort((a, b) => a.x - b.x);
let from = 0, to = width, pixels = width, picked = null;

const at = x => (x - from) / (to - from) * pixels;
const unitOf = ms => (ms - first) / (last - first) * width;

function draw() {
  pixels = Math.max(600, document.documentElement.clientWidth - LABELS - 16);
  for (const svg of $('svg.time')) svg.setAttribute('width', pixels + LABELS + 8);
  for (const svg of $('svg.plot')) svg.setAttribute('width', pixels);
  const scale = pixels / (to - from);
  for (const {el, x, w, room, letters} of things) {
    el.setAttribute('x', at(x).toFixed(2));
    if (w !== null) el.setAttribute('width', el.closest('.lines') ? 1 : Math.max(2, w * scale).toFixed(2));
    if (room !== null) el.classList.toggle('tight', room * scale < letters * LETTER + 4);
  }
  makeRoom();
  drawAxis();
  drawLinks();
}

// Of words in one row that would meet, the later one waits for a closer look.
function makeRoom() {
  const taken = new Map();
  for (const {el, letters} of words) {
    const row = `${el.parentNode.dataset.y} ${el.getAttribute('y')}`, isLeft = el.hasAttribute('text-anchor');
    const end = +el.getAttribute('x') + +el.getAttribute('dx') + (isLeft ? 0 : letters * LETTER);
    const isTight = (taken.get(row) ?? -Infinity) > end - letters * LETTER;
    el.classList.toggle('tight', isTight);
    if (!isTight) taken.set(row, end);
  }
}

function drawAxis() {
  const ms = (last - first) * (to - from) / width, rough = ms / (pixels / 100);
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * [1, 2, 5, 10].find(n => n * size >= rough);
  const start = first + (last - first) * from / width;
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  let texts = '', lines = '';
  for (let n = Math.ceil(start / step); n * step < start + ms; n++) {
    const x = at(unitOf(n * step)).toFixed(1);
    lines += `<path d="M${x} 0V${picture.getAttribute('height')}"/>`;
    const text = (n * step + 0).toLocaleString('en', {minimumFractionDigits: digits, maximumFractionDigits: digits}).replaceAll(',', '\u2009');
    const half = text.length * LETTER / 2;
    if (x > half && x < pixels - half) texts += `<text x="${x}" y="14" text-anchor="middle">${text}</text>`;
  }
  $('.ticks')[0].innerHTML = texts;
  $('.grid')[0].innerHTML = lines;
}

function look(a, b) {
  const size = Math.min(width, Math.max(b - a, width / 20000));
  from = Math.min(Math.max(0, a), width - size);
  to = from + size;
  requestAnimationFrame(draw);
}

function zoom(factor, around = (from + to) / 2) {
  look(around - (around - from) * factor, around + (to - around) * factor);
}

const move = part => look(from + (to - from) * part, to + (to - from) * part);

// From a delivery to its job, on to each lease, from a lease to its calls and to the next
// lease, and to a lease from the process that ended it without holding it.
function drawLinks() {
  const links = document.getElementById('links');
  links.innerHTML = '';
  if (picked === null) return;
  const parts = name => $(`.plot [data-p="${name}"][data-j~="${picked}"]`).map(place).sort((a, b) => a.left - b.left);
  const jobs = parts('job'), leases = parts('lease'), paths = [];
  for (const delivery of parts('delivery')) for (const job of jobs) paths.push(link(delivery.right, delivery.bottom, job.left, job.top));
  if (jobs.length && leases.length) paths.push(link(jobs[0].left, jobs[0].bottom, leases[0].left, leases[0].top));
  leases.forEach((lease, n) => { if (n) paths.push(link(leases[n - 1].right, leases[n - 1].middle, lease.left, lease.middle, 'again')); });
  for (const call of parts('call')) {
    const lease = leases.find(one => one.attempt === call.attempt);
    if (lease) paths.push(link(call.left, lease.bottom, call.left, call.top));
  }
  for (const end of parts('end')) {
    const lease = leases.find(one => one.attempt === end.attempt);
    if (lease) paths.push(link(end.left, end.middle, lease.right, lease.middle, 'again'));
  }
  links.innerHTML = paths.join('');
}

function place(el) {
  const y = +el.getAttribute('y') + +(el.parentNode.dataset.y || 0);
  const left = +el.getAttribute('x'), isBar = el.tagName === 'rect';
  const height = isBar ? +el.getAttribute('height') : 0;
  return {left, right: left + (isBar ? +el.getAttribute('width') : 0), attempt: el.dataset.a,
          top: isBar ? y : y - 5, bottom: isBar ? y + height : y + 5, middle: y + height / 2};
}

const link = (x1, y1, x2, y2, name = '') =>
  `<path class="${name}" d="M${x1} ${y1}C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}"/>`;

function pick(job) {
  picked = job === null || job === '' || job === picked ? null : `${job}`;
  const isKnown = picked !== null && /^\d+$/.test(picked);
  document.getElementById('pick').textContent = isKnown
    ? `.plot [data-j]:not([data-j~="${picked}"]) { opacity: .13 } .plot [data-j]:not([data-j~="${picked}"]) + .in { opacity: .13 } .plot .quiet[data-j~="${picked}"] { visibility: visible }` : '';
  if (!isKnown) picked = null;
  document.getElementById('job').value = picked ?? '';
  for (const chip of $('.chip')) {
    chip.setAttribute('aria-pressed', chip.dataset.job === picked);
    if (chip.dataset.job === picked) chip.parentNode.scrollTop = chip.offsetTop - $('.chip')[0].offsetTop;
  }
  tellStory();
  drawLinks();
}

// The entries of the job, in order; of marks that tell none, as in a crowded run, what they are.
function tellStory() {
  const story = document.getElementById('story'), told = new Map();
  for (const title of picked === null ? [] : $(`.plot [data-j~="${picked}"] > title`)) {
    const [head, ...rest] = title.textContent.split('\n'), isOwn = title.parentNode.dataset.j === picked;
    const entries = [head, ...rest].filter(line => /^#\d+ /.test(line));
    const {x} = things.find(thing => thing.el === title.parentNode);
    if (isOwn && !entries.length && title.parentNode.dataset.p) told.set(head, x);
    for (const line of entries) if (isOwn || line.includes(`job=${picked} `)) told.set(line, x);
  }
  const number = line => +(/^#(\d+) /.exec(line)?.[1] ?? NaN);
  const lines = [...told].sort((a, b) => number(a[0]) - number(b[0]) || a[1] - b[1]).map(([line]) => {
    const item = document.createElement('li');
    item.textContent = line;
    item.classList.toggle('w', $(`button.badge[data-i="${number(line)}"]`).length > 0);
    return item;
  });
  story.hidden = !lines.length;
  story.replaceChildren(...lines);
}

function step(by) {
  const jobs = $('.chip').map(chip => chip.dataset.job);
  if (jobs.length) pick(jobs[(jobs.indexOf(picked) + (picked === null && by < 0 ? 0 : by) + jobs.length) % jobs.length]);
}

const plot = $('.plot', picture)[0], range = document.getElementById('range');
const unitAt = event => from + (event.clientX - plot.getBoundingClientRect().left) / pixels * (to - from);
let dragged = null;
plot.addEventListener('pointerdown', event => { if (event.button === 0) dragged = {x: event.clientX, unit: unitAt(event)}; });
addEventListener('pointermove', event => {
  if (!dragged) return;
  event.preventDefault();
  const a = Math.min(dragged.unit, unitAt(event)), b = Math.max(dragged.unit, unitAt(event));
  range.setAttribute('x', at(a));
  range.setAttribute('width', at(b) - at(a));
});
addEventListener('pointerup', event => {
  if (!dragged) return;
  const {x, unit} = dragged, now = unitAt(event);
  dragged = null;
  range.setAttribute('width', 0);
  if (Math.abs(event.clientX - x) > 5) return look(Math.min(unit, now), Math.max(unit, now));
  const mark = event.target.closest('[data-j]');
  if (mark) pick(mark.dataset.j.split(' ')[0]);
});
plot.addEventListener('dblclick', () => look(0, width));
plot.addEventListener('wheel', event => {
  if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 300), unitAt(event));
  else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move((event.deltaX || event.deltaY) / 1000);
  else return;
  event.preventDefault();
}, {passive: false});
addEventListener('pointerover', event => {
  const title = event.target.closest?.('.plot [class]')?.querySelector(':scope > title');
  if (title) document.getElementById('told').textContent = title.textContent;
});

const KEYS = {'+': () => zoom(.5), '=': () => zoom(.5), '-': () => zoom(2), '0': () => look(0, width), ArrowLeft: () => move(-.2),
              ArrowRight: () => move(.2), j: () => step(1), k: () => step(-1), Escape: () => pick(null)};
addEventListener('keydown', event => {
  const isTyping = event.target.id === 'job' && event.key !== 'Escape';
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  KEYS[event.key]();
  event.preventDefault();
});
const on = (id, act) => document.getElementById(id).addEventListener('click', act);
on('in', KEYS['+']); on('out', KEYS['-']); on('left', KEYS.ArrowLeft); on('right', KEYS.ArrowRight);
on('whole', KEYS['0']); on('none', KEYS.Escape);
document.getElementById('job').addEventListener('change', event => pick(event.target.value.trim()));
for (const chip of $('.chip')) chip.addEventListener('click', () => pick(chip.dataset.job));
for (const badge of $('button.badge')) badge.addEventListener('click', () => {
  if (badge.dataset.job && badge.dataset.job !== picked) pick(badge.dataset.job);
  const moments = $('button.badge', badge.closest('ol')).map(one => +one.dataset.go);
  const a = Math.min(...moments), b = Math.max(...moments), air = Math.max((b - a) * .3, width / 100);
  look(a - air, b + air);
});
for (const button of $('.broken .all')) button.addEventListener('click', () => { button.closest('.broken').classList.add('whole'); button.remove(); });
addEventListener('resize', () => requestAnimationFrame(draw));
const suspect = $('button.badge[data-job]')[0];
draw();
pick(suspect ? suspect.dataset.job : null);
