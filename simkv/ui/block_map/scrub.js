// One clock for several maps: it tells them the moment of simulated time (simkv-time), they tell it what is done to them (simkv-drive).
const PLAY_S = 20;
const bars = new WeakMap();

export default function ({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector(".scrub");
  const known = bars.get(root);
  const bar = known?.data.group === data.group ? known : new Scrub(root, data);
  if (bar !== known) known?.stop();
  bar.send = setStateValue;
  bars.set(root, bar);
  return () => bar.pause();
}

class Scrub {
  constructor(root, data) {
    const pick = (selector) => root.querySelector(selector);
    Object.assign(this, { data, aborter: new AbortController(), timer: null });
    Object.assign(this, { slider: pick(".time"), button: pick(".play"), speed: pick(".speed"), clock: pick(".clock") });
    const { signal } = this.aborter;
    const on = (target, type, handler) => target.addEventListener(type, handler, { signal });
    on(this.slider, "input", () => this.seek(this.at(this.slider.value / this.slider.max)));
    on(this.slider, "change", () => this.release());
    on(this.button, "click", () => this.toggle());
    on(document, "simkv-drive", (e) => e.detail.group === data.group && this.driven(e.detail));
    pick(".marks").replaceChildren(...data.marks.map((mark) => this.mark(mark)));
    this.seek(window.simkvTime?.[data.group] ?? data.start);
  }

  mark({ time, label, title }) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: label, title });
    button.style.left = `${Math.min(97, Math.max(3, 100 * this.share(time)))}%`;
    button.onclick = () => (this.pause(), this.seek(time), this.release());
    return button;
  }

  at(share) {
    const [t0, t1] = this.data.span;
    return t0 + (t1 - t0) * Math.max(0, Math.min(1, share));
  }

  share(time) {
    const [t0, t1] = this.data.span;
    return t1 > t0 ? (time - t0) / (t1 - t0) : 0;
  }

  seek(time) {
    const [t0, t1] = this.data.span;
    this.time = Math.max(t0, Math.min(t1, time));
    this.slider.value = this.share(this.time) * this.slider.max;
    this.clock.textContent = this.words(this.time);
    this.slider.setAttribute("aria-valuetext", this.clock.textContent);
    (window.simkvTime ??= {})[this.data.group] = this.time;
    document.dispatchEvent(new CustomEvent("simkv-time", { detail: { group: this.data.group, time: this.time } }));
  }

  words(time) {
    if (this.data.unit === "steps") return `step ${Math.round(time).toLocaleString("en")}`;
    const two = (x) => String(x).padStart(2, "0");
    const fine = this.data.span[1] - this.data.span[0] < 600;
    const s = fine ? Math.floor(time * 10) / 10 : Math.floor(time);
    return `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${fine ? (s % 60).toFixed(1).padStart(4, "0") : two(s % 60)}`;
  }

  release() {
    this.send?.("time", this.time);
  }

  driven({ share, act, release }) {
    const [t0, t1] = this.data.span;
    const small = (t1 - t0) / 400;
    const to = { first: t0, back: this.time - small, next: this.time + small, last: t1 }[act];
    if (share !== undefined) this.seek(this.at(share));
    else if (to !== undefined) this.seek(to);
    else if (act === "play") this.toggle();
    if (release) this.release();
  }

  toggle() {
    if (this.timer) return this.pause(), this.release();
    const [t0, t1] = this.data.span;
    if (this.time >= t1) this.seek(t0);
    this.label("❚❚ Pause", "Pause");
    let before = performance.now();
    const tick = (now) => {
      this.seek(this.time + ((now - before) / 1000) * ((t1 - t0) / PLAY_S) * this.speed.value);
      before = now;
      if (this.time < t1) this.timer = requestAnimationFrame(tick);
      else this.pause(), this.release();
    };
    this.timer = requestAnimationFrame(tick);
  }

  pause() {
    if (!this.timer) return;
    cancelAnimationFrame(this.timer);
    this.timer = null;
    this.label("▶ Play", "Play");
  }

  label(text, name) {
    this.button.textContent = text;
    this.button.setAttribute("aria-label", name);
  }

  stop() {
    this.pause();
    this.aborter.abort();
  }
}
