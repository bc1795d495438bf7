"""Engines: settings resolved to numbers, version profiles, step time, and the compiled cores."""
