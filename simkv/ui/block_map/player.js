// Playing: frame after frame at the screen's own rate, a whole run in 20 s at speed 1.
const PLAY_S = 20;

class Player {
  constructor(button, speed, history, { seek, release }) {
    Object.assign(this, { button, speed, history, seek, release, timer: null });
  }

  toggle() {
    if (this.timer) this.pause();
    else this.play();
  }

  play() {
    const { history } = this;
    this.say("❚❚ Pause", "Pause");
    let at = history.frame >= history.T - 1 ? 0 : history.frame;
    let before = performance.now();
    const tick = (now) => {
      at += ((now - before) / 1000) * Math.max(4, history.T / PLAY_S) * this.speed.value;
      before = now;
      if (Math.floor(at) !== history.frame) this.seek(Math.min(history.T - 1, Math.floor(at)));
      if (history.frame >= history.T - 1) this.pause();
      else this.timer = requestAnimationFrame(tick);
    };
    this.timer = requestAnimationFrame(tick);
  }

  pause(tell = true) {
    if (!this.timer) return;
    cancelAnimationFrame(this.timer);
    this.timer = null;
    this.say("▶ Play", "Play");
    if (tell) this.release();
  }

  say(label, name) {
    this.button.textContent = label;
    this.button.setAttribute("aria-label", name);
  }
}
