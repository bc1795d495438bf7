"""vLLM V0 (release 0.2.7): paged attention with reference counts, copy-on-write and swapping, without a prefix cache.

0.2.7 is the last release whose block manager holds nothing but what the PagedAttention paper describes: prefix caching,
LoRA and chunked prefill came with 0.3.0 and later, and in 0.6.3 beam search left the engine.
"""
