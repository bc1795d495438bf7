"""What came out of one variant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simkv.errors import InputError
from simkv.replay import Run
from simkv.scenarios import figures
from simkv.scenarios.fleet import of_fleet
from simkv.scenarios.scenario import Variant, Where

if TYPE_CHECKING:
    from simkv.replay_fleet import FleetRun


@dataclass(frozen=True, eq=False)
class Outcome:
    """A variant and its run, of one replica or of a fleet."""

    variant: Variant
    run: Run | FleetRun
    kept: dict[tuple[str, Where], float | None] = field(default_factory=dict, repr=False)

    @property
    def status(self) -> str:
        """As of any run: complete, partial, stalled, crashed."""
        return self.run.status

    def figure(self, name: str, where: Where = Where()) -> float | None:  # noqa: B008 - frozen
        """A figure by key (simkv/scenarios/figures.py), over the whole run or some of its requests; ``None`` is no data.

        Raises:
            InputError: a part of the requests that this run does not have.
        """
        if (name, where) not in self.kept:
            self.kept.update({(k, where): v for k, v in self._all(where).items()})
        return self.kept.get((name, where))

    def _all(self, where: Where) -> dict[str, float | None]:
        run = self.run
        if where.everywhere:
            return figures.of_run(run) if isinstance(run, Run) else of_fleet(run)
        requests, placed = (run.requests, None) if isinstance(run, Run) else (run.requests[: run.traffic], run.placed[: run.traffic])
        try:
            which = figures.chosen(where, run.workload, requests, placed)
        except InputError as problem:
            raise InputError(f"{self.variant.name}: {problem}") from None
        return figures.of_requests(run.workload, requests, which)
