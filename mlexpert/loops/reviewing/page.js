// One task at a time, a filter, keys, and the command that records what was chosen.
const links = [...document.querySelectorAll('nav a')], tasks = [...document.querySelectorAll('.task')];
const chosen = new Map();
function open(id) {
  if (!tasks.some(t => t.id === id)) id = tasks.length ? tasks[0].id : '';
  tasks.forEach(t => t.classList.toggle('open', t.id === id));
  links.forEach(a => { a.setAttribute('aria-current', a.hash === '#' + id);
    if (a.hash === '#' + id) a.scrollIntoView({ block: 'nearest' }); });
  window.scrollTo(0, 0);
}
addEventListener('hashchange', () => open(decodeURIComponent(location.hash.slice(1))));
open(decodeURIComponent(location.hash.slice(1)));
const field = document.querySelector('nav input');
field.addEventListener('input', () => links.forEach(a =>
  a.style.display = a.dataset.words.includes(field.value.toLowerCase()) ? '' : 'none'));
function quote(text) { return "'" + text.replaceAll("'", "'\\''") + "'"; }
function show() {
  const yes = [...chosen].filter(([, c]) => c.yes).map(([id]) => id);
  const no = [...chosen].filter(([, c]) => !c.yes).map(([id, c]) => id + ':' + c.why.replaceAll(';', ','));
  const line = document.body.dataset.command + (yes.length ? ' --config.accept=' + yes.join(',') : '')
    + (no.length ? ' --config.reject=' + quote(no.join(';')) : '');
  document.querySelector('#tray').classList.toggle('open', chosen.size > 0);
  document.querySelector('#tray code').textContent = line;
  links.forEach(a => { const c = chosen.get(decodeURIComponent(a.hash.slice(1))), dot = a.querySelector('.state');
    dot.className = 'state ' + (c ? (c.yes ? 'accepted' : 'rejected') + ' chosen' : dot.dataset.state); });
  tasks.forEach(t => { const c = chosen.get(t.id);
    t.querySelector('.yes').setAttribute('aria-pressed', !!c && c.yes);
    t.querySelector('.no').setAttribute('aria-pressed', !!c && !c.yes); });
}
function choose(task, yes) {
  const before = chosen.get(task.id), why = task.querySelector('.decide input');
  if (before && before.yes === yes) chosen.delete(task.id);
  else if (!yes && !why.value.trim()) { why.focus(); why.placeholder = 'why? a rejection needs a reason'; return; }
  else chosen.set(task.id, { yes, why: why.value.trim() });
  show();
}
tasks.forEach(t => {
  t.querySelector('.yes').addEventListener('click', () => choose(t, true));
  t.querySelector('.no').addEventListener('click', () => choose(t, false));
  t.querySelector('.decide input').addEventListener('keydown', e => { if (e.key === 'Enter') choose(t, false); });
});
document.querySelector('#tray button').addEventListener('click', e => {
  navigator.clipboard?.writeText(document.querySelector('#tray code').textContent).then(() => e.target.textContent = 'Copied');
});
addEventListener('keydown', e => {
  if (e.target.tagName === 'INPUT' || e.ctrlKey || e.metaKey) return;
  const seen = links.filter(a => a.style.display !== 'none'), at = seen.findIndex(a => a.getAttribute('aria-current') === 'true');
  const step = { j: 1, ArrowDown: 0, k: -1 }[e.key];
  if (step && seen[at + step]) location.hash = seen[at + step].hash;
  if (e.key === 'a' && seen[at]) choose(tasks.find(t => '#' + t.id === decodeURIComponent(seen[at].hash)), true);
  if (e.key === 'r' && seen[at]) { e.preventDefault();
    tasks.find(t => '#' + t.id === decodeURIComponent(seen[at].hash)).querySelector('.decide input').focus(); }
});
