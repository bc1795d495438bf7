"""prefix_hash of smg 1.13.0 (model_gateway/src/policies/prefix_hash.rs): equal beginnings go to the same worker, if it has room.

The first prefix_token_count tokens of a prompt, or four times as many characters of its text, are hashed (XXH3) and the hash, as 16
hexadecimal digits, looked up on the ring of ``smg-consistent-hashing``; a header X-SMG-Routing-Key is hashed in their place. The
owner gets the request unless its requests in flight exceed both prefix_hash_load_factor times the mean and the mean +
prefix_hash_balance_abs_threshold, where the mean is (all + 1) / workers. Then the least loaded worker gets it, the first in
candidate order, if it is not too loaded itself. An empty prompt goes to the least loaded. (Started with --disable-retries the
router hands the policy no prompt at all, and everything goes to the least loaded.)

Simulated prompts have no text; what they are is hashed in its place, which is equal in the same cases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xxhash import xxh3_64_intdigest

from simkv.fleet.routing.policy import LOWER, Candidates, Content, Decision, PolicySettings
from simkv.fleet.routing.scores import by_slot
from simkv.fleet.routing.sequence import prefix_key, sequences
from simkv.fleet.routing.sglang_hashing import SmgConsistentHashing
from simkv.settings.base import setting

CHARS_PER_TOKEN = 4
HIT, WALK, NO_KEY = "ring_hit", "load_balance_walk", "no_routing_key"


@dataclass(frozen=True)
class PrefixHashSettings(PolicySettings):
    """Flags of ``--policy prefix_hash``, and how requests come."""

    prefix_token_count: int = setting(256, "tokens that are hashed; characters of text: four times as many", min=1, max=1 << 30)
    prefix_hash_load_factor: float = setting(1.25, "times the mean load that the owner may have", min=1.0, max=1e9)
    prefix_hash_balance_abs_threshold: int = setting(10, "requests in flight above the mean that the owner may have", min=0, max=1 << 30)
    prompts_as: str = setting("text", "how requests bring their prompt: text, or token ids", choices=("text", "input_ids"))


class SmgPrefixHash(SmgConsistentHashing):
    """A hash of the beginning on a ring, with bounded load."""

    name = "smg-prefix-hash"
    product = "smg 1.13.0"
    Settings = PrefixHashSettings
    settings: PrefixHashSettings

    def __init__(self, content: Content, workers: int, settings: PrefixHashSettings | None = None) -> None:
        super().__init__(content, workers, settings)
        self.prompts = sequences(content.workload)
        self.lengths = self.prompts.prompts["units"].tolist()
        self.as_ids = np.full(len(content.workload), self.settings.prompts_as == "input_ids").tolist()

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The owner of the beginning, or the least loaded worker."""
        every, scores = c.inflight.tolist(), by_slot(c.inflight, c.order)
        least = min(c.order, key=lambda w: every[w])
        data = self.hashed(req)
        if not data:
            return Decision([least], NO_KEY, scores=scores, prefers=LOWER)
        owner = self.worker_of(f"{xxh3_64_intdigest(data):016x}", c.order)
        total = int(sum(every[w] for w in c.order))
        mean = (total + 1) / len(c.order)
        bound = max(mean * self.settings.prefix_hash_load_factor, mean + self.settings.prefix_hash_balance_abs_threshold)
        if not total or every[owner] <= bound:
            return Decision([owner], HIT, scores=scores)
        return Decision([least if every[least] <= bound else owner], WALK, scores=scores, prefers=LOWER)

    def hashed(self, req: int) -> bytes:
        """What is hashed of a request."""
        # A chat's session is no header: only a routing key that the client sends stands for the prompt.
        key = self.content.session[req] if self.content.session is not None else None
        if key:
            return key.encode("utf-8", "surrogatepass")
        chars = 1 if self.as_ids[req] else CHARS_PER_TOKEN
        if self.content.chars_per_token != 1:
            upto = self.settings.prefix_token_count * chars // (1 if self.as_ids[req] else self.content.chars_per_token)
            return prefix_key(self.prompts, req, max(1, upto)).to_bytes(8, "little") if self.lengths[req] else b""
        upto = self.settings.prefix_token_count * chars
        prompt = self.prompts.prompts[req]
        pieces = self.prompts.pieces[prompt["piece"] : prompt["piece"] + prompt["pieces"]]
        pieces = pieces[pieces["begin"] < upto]
        parts = [self.prompts.written[p["at"] : p["at"] + min(p["end"], upto) - p["begin"]] for p in pieces]
        units = np.concatenate([np.zeros(0, np.int32), *parts])
        if self.as_ids[req]:
            return units.astype("<u4").tobytes()
        return "".join(map(chr, units.tolist())).encode("utf-8", "surrogatepass")
