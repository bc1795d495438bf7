"""vLLM's host offload tier: a second place for KV behind the device's prefix cache.

``host.py`` and its neighbours keep chunks in host memory (LRU or ARC), ``native.py`` and ``simple.py`` are vLLM's two
connectors, ``worker.py`` the two copy queues, ``holding.py`` and ``waiting.py`` what a connector changes in the scheduler.
All are compiled into the vLLM engine, and only where a replay has a host tier.
"""
