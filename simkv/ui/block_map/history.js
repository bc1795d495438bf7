// The blob: u4 length of the JSON, JSON, then deflated: header <u4 n, T, K>, offsets u4[T], index u4[K], first u1[n], state u1[K],
// pad to 8, times f8[T], frames u4[T].
// A block's byte is its state (0 … 5) and two bits: its key left the cache within the frame, and in the very step shown.
const KEYFRAME = 32;
const KINDS = 7; // six states and, beside them, evicted within the frame
const RESERVED = 5;
const RED = 6; // where the evicted ones are counted and coloured
const STATE = 7;
const EVICTED = 8;
const EVICTED_NOW = 16;

const headLength = (blob) => new DataView(blob.buffer, blob.byteOffset, 4).getUint32(0, true);
const metaOf = (blob) => JSON.parse(new TextDecoder().decode(blob.subarray(4, 4 + headLength(blob))));

async function inflate(blob) {
  const stream = new Blob([blob.subarray(4 + headLength(blob))]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

class History {
  constructor(bytes, meta) {
    const [n, T, K] = new Uint32Array(bytes.buffer, 0, 3);
    let at = 12;
    const take = (Type, count) => {
      const out = new Type(bytes.slice(at, at + count * Type.BYTES_PER_ELEMENT).buffer); // a copy: views need alignment
      at += count * Type.BYTES_PER_ELEMENT;
      return out;
    };
    Object.assign(this, { n, T, K, meta });
    this.offsets = take(Uint32Array, T);
    this.index = take(Uint32Array, K);
    const first = take(Uint8Array, n);
    this.changes = take(Uint8Array, K);
    at = Math.ceil(at / 8) * 8;
    this.times = take(Float64Array, T);
    this.steps = take(Uint32Array, T);
    this.state = first.slice();
    this.frame = 0;
    this.prepare();
  }

  // Keyframes for seeking and the number of blocks per state (and of evicted ones) in every frame, in one pass.
  prepare() {
    const { n, T, state } = this;
    const count = new Uint32Array(KINDS);
    const add = (byte, one) => {
      count[byte & STATE] += one;
      if (byte & EVICTED) count[RED] += one;
    };
    for (let b = 0; b < n; b++) add(state[b], 1);
    this.counts = new Uint32Array(T * KINDS);
    this.keyframes = [];
    for (let t = 0; t < T; t++) {
      if (t > 0) {
        for (let k = this.offsets[t - 1]; k < this.offsets[t]; k++) {
          const b = this.index[k];
          add(state[b], -1);
          add((state[b] = this.changes[k]), 1);
        }
      }
      this.reserves ||= count[RESERVED] > 0; // only engines that reserve ahead have such blocks
      this.counts.set(count, t * KINDS);
      if (t % KEYFRAME === 0) this.keyframes.push(state.slice());
    }
    this.frame = T - 1;
  }

  // Move to a frame. Returns [from, to] in `index` when only those blocks changed, null when all must be drawn.
  seek(frame) {
    const ahead = frame - this.frame;
    let from = this.frame;
    if (ahead < 0 || ahead > KEYFRAME) {
      const key = Math.floor(frame / KEYFRAME);
      this.state.set(this.keyframes[key]);
      from = key * KEYFRAME;
    }
    const [a, b] = [this.offsets[from], this.offsets[frame]];
    for (let k = a; k < b; k++) this.state[this.index[k]] = this.changes[k];
    this.frame = frame;
    return ahead < 0 || ahead > KEYFRAME ? null : [a, b];
  }

  // The first frame at or after a step of the run.
  frameOf(step) {
    let [low, high] = [0, this.T - 1];
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.steps[mid] >= step) high = mid;
      else low = mid + 1;
    }
    return low;
  }

  // The last frame that had begun at a moment of simulated time.
  frameAt(time) {
    let [low, high] = [0, this.T - 1];
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (this.times[mid] <= time) low = mid;
      else high = mid - 1;
    }
    return low;
  }

  clock(frame) {
    const step = `step ${this.steps[frame].toLocaleString("en")}`;
    if (this.meta.time_unit === "steps") return step;
    const t = Math.max(0, this.times[frame] - (this.meta.t0 ?? 0));
    const fine = this.times[this.T - 1] - this.times[0] < 600;
    const s = fine ? Math.floor(t * 10) / 10 : Math.floor(t);
    const two = (x) => String(x).padStart(2, "0");
    const rest = fine ? (s % 60).toFixed(1).padStart(4, "0") : two(s % 60);
    return `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${rest} · ${step}`;
  }
}
