"""What every routing policy offers and is given. Nothing here decides anything.

A policy answers in two halves. ``decide`` says which workers the router's rule allows and what it compared; the real
router may draw lots among them. ``commit`` says which one it became, and is where the index learns. A recorded decision is
checked between the two; the simulation draws there with its own seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from simkv.settings.base import Validated
from simkv.workload.workload import Workload

if TYPE_CHECKING:
    from simkv.fleet.kv.kv_index import KVIndex

F8 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

METRICS = np.dtype(
    [
        ("time", "f8"),  # seconds; NaN while the worker has never been asked
        ("running", "i8"),  # requests in the running batch
        ("waiting", "i8"),  # requests in the engine's queue
        ("kv_usage", "f8"),  # 0 … 1: blocks held by live requests ÷ usable blocks
        ("tokens", "i8"),  # tokens of waiting and running requests (SGLang's GET /get_load: num_tokens)
        ("capacity", "i8"),  # blocks of the pool
        ("block_size", "i8"),  # tokens per block
    ]
)
"""What a router last read from each worker's metrics."""

NEITHER, LOWER, HIGHER = 0, -1, 1
"""Which scores a rule prefers."""


@dataclass(frozen=True, eq=False)
class Content:
    """What routers can see of the requests: request ``i`` is request ``i`` of the workload.

    Args:
        workload: prompts as content runs. In recordings the "tokens" are the units the real router matched (characters, …).
        chars_per_token: characters that one token of the workload stands for, for policies that look at text.
        session: what identifies the user or session of each request (header or body field), ``None`` where there is nothing.
    """

    workload: Workload
    chars_per_token: int = 4
    session: Sequence[str | None] | None = None

    def key(self, i: int) -> str | None:
        """Session key of request ``i``; ``None`` if it carries none."""
        if self.session is not None:
            return self.session[i]
        w = self.workload
        if w.session is not None and w.session[i] >= 0:
            return w.sessions[w.session[i]] if w.sessions else f"s{w.session[i]}"
        return None


@dataclass(slots=True)
class Candidates:
    """The workers as one router process sees them. W slots; a slot keeps its number for the whole run.

    Args:
        order: live slots in the router's own candidate order (the order of joining unless the router says otherwise).
        inflight: requests this router process has sent and not seen finished, shape ``[W]``.
        metrics: ``METRICS[W]``, as last scraped.
    """

    order: list[int]
    inflight: I8
    metrics: npt.NDArray[np.void]


@dataclass(slots=True)
class Decision:
    """What a rule says about one request.

    Args:
        allowed: workers among which the real router may choose; the first of a fixed order, or lots. Not empty.
        branch: which part of the rule decided, in the router's own words if it has any.
        matched, total: units of the prompt that matched for the decision, and units compared; 0, 0 where nothing is matched.
        scores: what the rule compared per worker, shape ``[W]``, NaN where a worker was no candidate; ``None`` if nothing was.
        prefers: LOWER or HIGHER scores, or NEITHER.
        weights: chances of the workers in ``allowed`` if they are not equal.
        believed: units taken for cached on each worker, shape ``[W]``, where the rule knows them apart; then the log has those of
            the worker it became in place of ``matched``.
    """

    allowed: Sequence[int]
    branch: str
    matched: int = 0
    total: int = 0
    scores: F8 | None = None
    prefers: int = NEITHER
    weights: Sequence[float] | None = None
    believed: Sequence[int] | None = None


@dataclass(frozen=True)
class PolicySettings(Validated):
    """Settings of a policy, under the router's own names, with its defaults."""


class RoutingPolicy:
    """Base of the policies: one router process with its own tables.

    Subclasses set ``name`` (product and rule, as the user writes it), ``product`` (name and version, or commit), ``Settings``, and
    override what they need. Workers are slots ``0 … workers-1``; none is there before ``add_worker``.

    Args:
        content: the requests.
        workers: slots at most.
        settings: an instance of ``Settings``.
    """

    name: ClassVar[str]
    product: ClassVar[str]
    Settings: ClassVar[type[PolicySettings]] = PolicySettings
    shared: ClassVar[bool] = False
    """Whether all router processes of a fleet use one object, because the product keeps its tables where all of them reach them.

    Its workers and ticks are then told once for every process, so telling twice must change nothing.
    """
    wants_metrics: ClassVar[bool] = False
    """Whether ``Candidates.metrics`` is read."""
    metrics_interval_s: ClassVar[float] = 1.0
    """Seconds between two readings of the workers' metrics, by the router's default."""
    wants_first_tokens: ClassVar[bool] = False
    """Whether ``first_token`` is to be called."""
    wants_kv_events: ClassVar[bool] = False
    """Whether ``kv_index`` is to be fed."""

    def __init__(self, content: Content, workers: int, settings: Any = None) -> None:
        self.content, self.workers = content, workers
        self.settings = settings if settings is not None else self.Settings()
        self.setup()

    def setup(self) -> None:
        """Make the tables."""

    @property
    def interval(self) -> float | None:
        """Seconds between calls of ``tick``; ``None`` for a router without background work."""
        return None

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """Which workers the rule allows for a request. ``c.order`` is not empty."""
        raise NotImplementedError

    def commit(self, req: int, worker: int, now: float) -> None:
        """The request goes to this worker."""

    def first_token(self, req: int, worker: int, now: float) -> None:
        """The worker's first token for the request came by."""

    def finished(self, req: int, worker: int, now: float) -> None:
        """The request ended, or its worker died."""

    def add_worker(self, worker: int, now: float) -> None:
        """A worker joined, or came back, with an empty cache."""

    def remove_worker(self, worker: int, now: float) -> None:
        """A worker left; nothing more is sent to it."""

    def tick(self, now: float) -> None:
        """Background work (eviction, expiry)."""

    @property
    def kv_index(self) -> KVIndex | None:
        """What it knows of the workers' caches from their KV events; ``None`` if it takes none."""
        return None

    def kv_events(self, worker: int, batch: KVEvents) -> None:
        """What entered and left a worker's cache, in order. A fleet feeds ``kv_index`` itself."""
        if self.kv_index is not None:
            self.kv_index.apply(worker, batch)


@dataclass(slots=True)
class KVEvents:
    """A worker's KV events since the last call: chain keys (simkv/engine/vllm/keys.py) of blocks of ``block_size`` tokens.

    ``kinds[i]``: 1 stored, 0 removed, 2 all cleared (its key means nothing).
    """

    kinds: npt.NDArray[np.uint8]
    keys: npt.NDArray[np.uint64]
    block_size: int
    extra: dict[str, Any] = field(default_factory=dict)
