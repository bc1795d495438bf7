"""The decision table: which scenario shows each row, and the two variants to compare."""

DECISIONS = {
    "fixed system prompt and tools shared by many -> prefix caching on": ("system_prompt", "caching off", "caching on"),
    "the cost: partial misses at block edges": ("system_prompt", "caching on", "blocks of 512"),
    "few-shot examples that branch per request -> radix tree": ("few_shot", "vLLM, blocks of 256", "SGLang, radix tree"),
    "adapters or images change often -> separate budgets": ("adapters_and_images", "all mixed", "a replica for each kind"),
    "several replicas -> session affinity": ("four_replicas", "round robin", "session affinity"),
    "several replicas -> prefix-aware routing": ("four_replicas", "round robin", "prefix-aware, balanced"),
    "the cost: less freedom to balance": ("four_replicas", "session affinity", "prefix-aware, balanced"),
    "memory tight, throughput first -> higher gpu_memory_utilization": ("memory_tight", "0.80", "0.97"),
}
"""Row of the decision table -> scenario and the two variants to compare: the situation as it is, and the candidate."""
