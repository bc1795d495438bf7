"""Requests as flat arrays: the readers of trace formats, the generators, and the content of prompts."""
