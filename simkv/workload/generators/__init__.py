"""Traffic made up on purpose: seeded, with a known prefix structure."""

from simkv.workload.generators.params import Generator, Param
from simkv.workload.generators.registry import find_generator, generate, generators

__all__ = ["Generator", "Param", "find_generator", "generate", "generators"]
