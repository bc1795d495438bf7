"""What a rule compared, per slot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simkv.fleet.routing.policy import F8, I8


def by_slot(values: I8, order: Sequence[int]) -> F8:
    """The values of the candidates, shape ``[W]``; NaN for slots that are none."""
    scores = values.astype(np.float64)
    if len(order) < len(scores):
        scores[np.isin(np.arange(len(scores)), order, invert=True)] = np.nan
    return scores
