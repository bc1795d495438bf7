// Maps of one group show the same moment of simulated time. Their bar (scrub.js) is another component of the page, so they
// meet on the document: the bar tells the time (simkv-time), a map tells what is done to it (simkv-drive).
const clockOf = (group) => window.simkvTime?.[group];

function follow(map, time) {
  const [t0, t1] = map.history.meta.span;
  map.root.querySelector(".needle").style.left = `${(100 * (time - t0)) / Math.max(1e-9, t1 - t0)}%`;
  map.later(map.history.frameAt(time));
}

function drive(group, what) {
  document.dispatchEvent(new CustomEvent("simkv-drive", { detail: { group, ...what } }));
}
