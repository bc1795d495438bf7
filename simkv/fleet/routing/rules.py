"""Every policy's rule in one line, for menus. The whole rule, with its source, stands in the policy's own file."""

from __future__ import annotations

RULES = {
    "round-robin": "One after the other, whatever they are doing.",
    "random": "Any replica, all equally likely.",
    "least-load": "The replica with the fewest requests in flight; ties by lot.",
    "power-of-two": "Two replicas drawn by lot, the one with fewer requests in flight.",
    "session-hash": "Hash of the session modulo the number of replicas: one more or less moves most sessions.",
    "session-ring": "Hash of the session on a ring: one replica more or less moves few sessions.",
    "sglang-cache-aware": "Longest text match in one tree of what was sent; below the threshold, or out of balance, the least loaded.",
    "sglang-power-of-two": "Two replicas drawn by lot, the one that reported fewer tokens.",
    "sglang-consistent-hashing": "Hash of the session modulo the number of replicas (no ring, in spite of its name).",
    "sglang-manual": "A session stays where it began; a new one goes by assignment_mode.",
    "smg-round-robin": "One after the other, counted per set of replicas.",
    "smg-cache-aware": "Longest match, the least loaded of its holders; spills when they are far above the mean.",
    "smg-power-of-two": "Two replicas drawn by lot, the one that reported fewer tokens, else with fewer requests in flight.",
    "smg-consistent-hashing": "Hash of the session on a ring of 150 points a replica.",
    "smg-prefix-hash": "Hash of the beginning of the prompt on a ring; a replica above load_factor times the mean is passed over.",
    "smg-manual": "A session stays where it began; a new one goes by assignment_mode.",
    "vllm-router-cache-aware": "Longest token match in one tree of what was sent; below the threshold, or out of balance, least loaded.",
    "vllm-router-consistent-hash": "Hash of the session, else of the prompt, on a ring.",
    "vllm-router-sticky-least-loaded": "A session stays where it began; a new one goes where the fewest are.",
    "ray-prefix-aware": "Longest text match in one tree, else the replicas with the fewest characters; the shortest queue of them.",
    "production-stack-roundrobin": "One after the other, counted per set of endpoints.",
    "production-stack-session": "Hash of the session on a ring of 160 points a replica; without one the lowest request rate.",
    "production-stack-prefixaware": "Longest known prefix in chunks of 128 characters; lots among those that had it. Nothing is forgotten.",
    "production-stack-loadaware": "Share of the prompt that KV events say is cached, less beta times the load above the mean.",
    "llm-d-approx-prefix": "Weighted sum of approximate prefix match, queue and KV usage; the highest wins.",
    "llm-d-precise-prefix": "Weighted sum of the prefix that KV events say is cached, queue and KV usage; the highest wins.",
    "aibrix-prefix-cache": "Longest prefix in blocks of 4 bytes on a replica that is not too busy, else the least busy.",
    "dynamo-kv": "Lowest cost: blocks to prefill, less those that KV events say are cached, plus blocks being decoded.",
}
"""Name -> rule, without what is behind it: thresholds, ties, eviction."""
