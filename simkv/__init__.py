"""Replay LLM traffic through a decision-exact model of a serving engine's KV cache.

``simkv.replay.replay(workload, settings)`` is the way in from Python; ``simkv --help`` from the command line;
``simkv app`` in the browser. Importing this package loads nothing heavy.
"""

__version__ = "0.1.0"
