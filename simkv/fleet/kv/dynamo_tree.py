"""NVIDIA Dynamo's index of cached blocks where caches lose blocks from the middle (ConcurrentRadixTreeCompressed, 1.6.1).

An edge of the tree is a run of blocks, and a worker holds a run from its beginning up to some block. So a removed block takes the
rest of its run with it, for good; runs beyond stay, and count again once the gap is closed. When no worker holds a run to its
end, what follows it is cut off, but those who hold it there still find it by their own tables, and may then miss the copy that
is in the tree. As with several indexer threads, the service's default.

In plain Python, for recordings: a simulated cache loses its blocks from the end, and then each block counts for itself (index.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Blocks = Sequence[int]
"""Keys of consecutive blocks; a key stands for its block and all before it."""


class Run:
    """A run of blocks below another run's end."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = list(blocks)
        self.place = {key: i for i, key in enumerate(self.blocks)}
        self.held: dict[int, int] = {}  # worker -> leading blocks it holds, at least 1
        self.children: dict[int, Run] = {}
        self.branched = False  # it has had children: it does not grow any more, even if they are gone

    def full(self) -> set[int]:
        """Workers that hold it to its end."""
        return {worker for worker, n in self.held.items() if n == len(self.blocks)}

    def hold(self, worker: int, n: int) -> None:
        """The worker holds the first ``n`` blocks, or more if it did before."""
        self.held[worker] = max(self.held.get(worker, 0), n)

    def grow(self, worker: int, blocks: Blocks) -> None:
        """More blocks at its end, which the worker holds."""
        self.place |= {key: i for i, key in enumerate(blocks, len(self.blocks))}
        self.blocks += blocks
        self.held[worker] = len(self.blocks)

    def split(self, at: int) -> Run:
        """Cut behind the first ``at`` blocks; the rest becomes the only child, and is returned."""
        rest = Run(self.blocks[at:])
        rest.held = {worker: n - at for worker, n in self.held.items() if n > at}
        rest.children, rest.branched = self.children, bool(self.children)
        self.blocks = self.blocks[:at]
        self.place = {key: i for i, key in enumerate(self.blocks)}
        self.held = {worker: min(n, at) for worker, n in self.held.items()}
        self.children, self.branched = {rest.blocks[0]: rest}, True
        return rest


class DynamoTree:
    """The index of one router."""

    def __init__(self) -> None:
        self.root = Run([])
        self.where: dict[int, dict[int, Run]] = {}  # per worker, the run of each block it holds

    def store(self, worker: int, parent: int | None, blocks: Blocks) -> None:
        """One store event: ``blocks`` behind ``parent``. Ignored if the worker does not hold that one."""
        run, where = self.root, self.where.setdefault(worker, {})
        if parent is not None:
            found = where.get(parent)
            if found is None:
                return
            run, place = found, found.place[parent]
            if place >= run.held.get(worker, 0):
                where.pop(parent)
                return
            rest = run.blocks[place + 1 :]
            same = common(rest, blocks)
            if rest and same == len(blocks):
                run.hold(worker, place + 1 + same)
                where |= dict.fromkeys(blocks, run)
                return
            if rest and same == len(rest) and not run.branched:
                run.grow(worker, blocks[same:])
                where |= dict.fromkeys(blocks, run)
                return
            if rest:
                self._split(run, place + 1)
        while blocks:
            child = run.children.get(blocks[0])
            if child is None:
                if run is not self.root and not run.branched and run.held.get(worker) == len(run.blocks):
                    run.grow(worker, blocks)
                else:
                    child = run.children[blocks[0]] = Run(blocks)
                    child.held[worker] = len(blocks)
                    run.branched = True
                    run = child
                where |= dict.fromkeys(blocks, run)
                return
            same = common(child.blocks, blocks)
            child.hold(worker, same)
            where |= dict.fromkeys(blocks[:same], child)
            blocks = blocks[same:]
            if blocks and same < len(child.blocks):
                self._split(child, same)
            run = child

    def _split(self, run: Run, at: int) -> None:
        rest = run.split(at)
        for worker, n in rest.held.items():
            self.where[worker] |= dict.fromkeys(rest.blocks[:n], rest)

    def remove(self, worker: int, blocks: Blocks) -> None:
        """One remove event. Blocks that follow each other in the list and in a run go together."""
        run: Run | None = None
        group: list[int] = []
        for key in blocks:
            if run is not None and key in run.place:
                group.append(key)
                continue
            self._remove(worker, run, group)
            run, group = self.where.get(worker, {}).get(key), [key]
        self._remove(worker, run, group)

    def _remove(self, worker: int, run: Run | None, group: Blocks) -> None:
        if run is None:
            return
        first, held = min(run.place[key] for key in group), run.held.get(worker, 0)
        for key in run.blocks[first : max(held, first + 1)]:
            self.where[worker].pop(key, None)
        if first < held:
            run.held[worker] = first
            if first == 0:
                del run.held[worker]
        if not run.full():
            run.children = {}

    def clear(self, worker: int) -> None:
        """The worker holds nothing any more."""
        self.where.pop(worker, None)
        for run in list(self._runs()):
            if run.held.pop(worker, 0) and not run.full():
                run.children = {}

    def _runs(self) -> Iterator[Run]:
        todo = list(self.root.children.values())
        while todo:
            run = todo.pop()
            todo += run.children.values()
            yield run

    def match(self, blocks: Blocks) -> dict[int, int]:
        """Leading blocks by worker, as find_matches counts them; workers with none are left out.

        A run that all its holders hold to its end, as many as the workers still in the race, is taken to be held by these,
        whoever they are; after a gap they may be others.
        """
        out: dict[int, int] = {}
        racing: set[int] | None = None
        run, depth = self.root.children.get(blocks[0]) if blocks else None, 0
        while run is not None:
            same, full = common(run.blocks, blocks[depth:]), run.full()
            if racing is None:
                racing = full
                out |= {worker: min(n, same) for worker, n in run.held.items() if worker not in full}
            elif len(full) != len(run.held) or len(full) != len(racing):
                out |= {worker: depth + min(run.held.get(worker, 0), same) for worker in racing - full}
                racing = racing & full
            depth += same
            if same < len(run.blocks) or not racing or depth == len(blocks):
                break
            run = run.children.get(blocks[depth])
        return out | dict.fromkeys(racing or (), depth)


def common(a: Blocks, b: Blocks) -> int:
    """How many leading blocks are the same."""
    n, most = 0, min(len(a), len(b))
    while n < most and a[n] == b[n]:
        n += 1
    return n
