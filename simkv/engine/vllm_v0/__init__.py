"""vLLM V0 (release 0.2.7): paged attention with reference counts, copy-on-write and swapping, without a prefix cache.

0.2.7 is close to the PagedAttention paper: prompts and decodes in steps of their own, padded prompt batches, a block manager
without prefix cache or LoRA, and beam search inside the engine, which later releases moved out of it. Sliding windows of
this release are not modelled: every layer attends to everything.
"""
