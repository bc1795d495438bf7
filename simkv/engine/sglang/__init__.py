"""SGLang 0.5.23: the radix tree of cached prefixes and the scheduler above it."""
