"""One connector or the other: which is decided when the engine is compiled, by which of the two states is there.

A branch under ``x is not None`` is left out where x is None; the compiler does that for arguments only.
"""

from __future__ import annotations

from simkv.engine.offload.compiled import inline, kernel
from simkv.engine.offload.fences import native_ended
from simkv.engine.offload.native import native_build, native_hit, native_load
from simkv.engine.offload.native_done import native_completed, native_reset
from simkv.engine.offload.simple import (
    simple_build,
    simple_completed,
    simple_ended,
    simple_hit,
    simple_load,
    simple_reset,
)


@kernel
def external_hit(native, simple, h, e, cfg, c, s, r, local):
    """Tokens the host tier has behind the local hit of the request in slot ``s``; LATER if that is not known yet."""
    if simple is not None:
        return simple_hit(h, simple, e, cfg, c, s, r, local)
    if native is not None:
        return native_hit(h, native, e, cfg, c, s, r, local)
    return 0


@kernel
def order_load(native, simple, h, e, cfg, c, s, r, tokens):
    """The request got its blocks; ``tokens`` of them are to be loaded."""
    if simple is not None:
        simple_load(h, simple, e, cfg, c, s, r, tokens)
    if native is not None:
        native_load(h, native, e, cfg, c, s, r, tokens)


@kernel
def build_transfers(native, simple, h, e, cfg, c, rows):
    """At the end of schedule(): the copies this step orders."""
    if simple is not None:
        simple_build(h, simple, e, cfg, c, rows)
    if native is not None:
        native_build(h, native, e, cfg, c, rows)


@kernel
def tell_ended(native, simple, h, e, cfg, c, r):
    """A request has ended; its blocks are about to be freed."""
    if simple is not None:
        simple_ended(h, simple, e, cfg, c, r)
    if native is not None:
        native_ended(h, native, r)


@kernel
def transfers_done(native, simple, h, e, cfg, c, ended):
    """Copies have ended (``h.done``)."""
    if simple is not None:
        simple_completed(h, simple, e, cfg, c, ended)
    if native is not None:
        native_completed(h, native, e, cfg, c, ended)


@kernel
def clear_host(native, simple, h, e, cfg, c):
    """Forget what is in host memory. Returns whether that succeeded."""
    if simple is not None:
        return simple_reset(h, simple, e, cfg, c)
    if native is not None:
        native_reset(h, native, e, cfg, c)
    return True


@inline
def transfers_pending(simple, h):
    """Whether the engine must keep stepping for the connector."""
    if simple is not None:
        return simple.pool[0].chain_len > 0 or simple.pool[0].live_stores > 0
    return h.counters[0].jobs > 0
