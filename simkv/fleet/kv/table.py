"""Open addressing tables of blocks: one row for each, its key first. Compiled.

A table has ``rows`` (records[R + 1] with a ``key``, of which the first ``places`` = 2^k <= R are in use; the last is always empty),
``places`` and ``meta`` (META[1]). Keys are well mixed; 0 is an empty place.
"""

from __future__ import annotations

import numpy as np

from simkv.fleet.kv.compiled import entry, inline, kernel
from simkv.jit import prefetch, record

U = np.uint64
META = record(("live", "i8"))
"""``live``: blocks that have a row."""


@inline
def home_of(table, key):
    """Place where the search for a key begins; keys are well mixed."""
    return np.int64(key & U(table.places - 1))


@inline
def fetch(table, key):
    """The place where the search for a key begins will soon be looked at."""
    prefetch(table.rows.ctypes.data + home_of(table, key) * table.rows.itemsize)


@inline
def place_of(table, key):
    """Place that holds ``key``, or the empty one where it would go."""
    x = home_of(table, key)
    while table.rows[x].key != key and table.rows[x].key != 0:
        x = (x + 1) & (table.places - 1)
    return x


@kernel
def drop(table, x):
    """The block at place ``x`` leaves the table; later rows of its probe chain move up."""
    rows, mask = table.rows, table.places - 1
    i = x
    while True:
        i = (i + 1) & mask
        key = rows[i].key
        if key == 0:
            break
        if (i - home_of(table, key)) & mask >= (i - x) & mask:
            rows[x] = rows[i]
            x = i
    rows[x] = rows[rows.size - 1]
    table.meta[0].live -= 1


@inline
def is_full(table):
    return table.meta[0].live >= table.places // 8 * 5


@entry
def refill(table, rows, places):
    """Enter the rows of a table of ``places``. They may be those of ``table`` itself, with half the places.

    From an empty place on, rows go to places no later than their own (in either half), so none is written over.
    """
    first = 0
    while rows[first].key != 0:
        first += 1
    for i in range(1, places):
        y = (first + i) & (places - 1)
        if rows[y].key != 0:
            x = place_of(table, rows[y].key)
            if table.rows[x].key == 0:
                table.rows[x] = rows[y]
                rows[y] = rows[rows.size - 1]
