"""Engine versions as data: what one vLLM release decides differently from another.

One code path reads these flags; there are no copies of the engine. A row stands for a release line (0.25 = 0.25.0,
0.25.1 …); a version between two rows behaves like the older row. Where the change happened inside a gap of releases
we looked at, the row is the first release seen with the new behaviour.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from simkv.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Profile:
    """Behaviour of one release line.

    Args:
        version: the release line, ``major.minor``.
        changes: what is new in this line against the row before, one sentence for people.
        unhashed_to_front: a freed block without a hash goes to the head of the free queue (next victim). Through 0.23
            all blocks of a request were appended to the tail together, in the order of release.
        caching_off_to_front: the same question with prefix caching switched off. It changed four times:
            tail through 0.23, head in 0.25, tail in 0.27, head from 0.29 on.
        reserve_full_isl: default of ``scheduler_reserve_full_isl`` (admit a request only if its whole prompt fits);
            ``None`` where the setting does not exist, which behaves like off.
        watermark: whether the ``watermark`` setting exists (its default is 0 everywhere).
        stats_at_lookup: prefix-cache queries and hits are counted at every lookup attempt, so a request that waits for
            memory is counted again and again; later releases count once, at admission.
        split_preempted: lookups of requests that resume after a preemption are counted apart and not exported.
        async_default: asynchronous scheduling is on unless switched off (single process and multiprocess executors).
        fixed_none_hash: the root of the hash chain is the same in every process; before, it was random per process
            unless PYTHONHASHSEED was set, so hashes of two replicas could not be compared.
        gpu_memory_utilization: default share of GPU memory.
        tagged_extra_keys: extra keys in the block hash are pairs such as ("cache_salt", salt) instead of bare values.
        lora_path_in_key: the adapter's path is part of the block hash, not only its name.
        cuda_graphs_reserved: memory for CUDA graphs is subtracted before the KV cache is sized; before, graphs were
            captured on top of the budget.
        events_as_maps: KV events on the wire are maps; through 0.23 they were arrays.
    """

    version: str
    changes: str
    unhashed_to_front: bool
    caching_off_to_front: bool
    reserve_full_isl: bool | None
    watermark: bool
    stats_at_lookup: bool
    split_preempted: bool
    async_default: bool
    fixed_none_hash: bool
    gpu_memory_utilization: float
    tagged_extra_keys: bool
    lora_path_in_key: bool
    cuda_graphs_reserved: bool
    events_as_maps: bool


def _table() -> tuple[Profile, ...]:
    rows = [
        Profile(
            version="0.10",
            changes="Oldest V1 line with a profile: freed blocks all go to the tail of the free queue, statistics count every lookup.",
            unhashed_to_front=False,
            caching_off_to_front=False,
            reserve_full_isl=None,
            watermark=False,
            stats_at_lookup=True,
            split_preempted=False,
            async_default=False,
            fixed_none_hash=False,
            gpu_memory_utilization=0.9,
            tagged_extra_keys=False,
            lora_path_in_key=False,
            cuda_graphs_reserved=False,
            events_as_maps=False,
        )
    ]

    def then(version: str, changes: str, **flags: bool | float) -> None:
        rows.append(replace(rows[-1], version=version, changes=changes, **flags))  # type: ignore[arg-type]

    then("0.13", "Lookups of resumed requests are counted apart; asynchronous scheduling exists but is off.", split_preempted=True)
    then("0.16", "Asynchronous scheduling is on by default.", async_default=True)
    then("0.18", "Decides like 0.16; last line with gpu_memory_utilization 0.9 and without the full-prompt gate.")
    then(
        "0.20",
        "Admission only if the whole prompt fits (scheduler_reserve_full_isl, on); gpu_memory_utilization 0.92.",
        reserve_full_isl=True,
        gpu_memory_utilization=0.92,
    )
    then("0.22", "Memory for CUDA graphs is reserved before the KV cache is sized (since 0.21).", cuda_graphs_reserved=True)
    then("0.23", "Decides like 0.22; last line that appends un-hashed blocks to the tail and sends events as arrays.")
    then(
        "0.25",
        "Un-hashed blocks are reused first, also with caching off; watermark setting (default 0); events are maps.",
        unhashed_to_front=True,
        caching_off_to_front=True,
        watermark=True,
        events_as_maps=True,
    )
    then(
        "0.27",
        "With caching off, freed blocks go to the tail again; statistics count once, at admission.",
        caching_off_to_front=False,
        stats_at_lookup=False,
    )
    then(
        "0.29",
        "With caching off, freed blocks go to the head; the root of the hash chain is fixed.",
        caching_off_to_front=True,
        fixed_none_hash=True,
    )
    then("0.31", "Extra keys of the hash are tagged and hold the adapter's path.", tagged_extra_keys=True, lora_path_in_key=True)
    then("0.32", "Decides like 0.31; the version all recorded runs come from.")
    return tuple(rows)


_PROFILES = _table()


def profiles() -> tuple[Profile, ...]:
    """All profiles, oldest first."""
    return _PROFILES


def profile(version: str) -> Profile:
    """The newest profile that is not newer than ``version`` ("0.32", "0.32.0", "v0.25.1", "0.29.0rc1").

    Raises:
        SettingsError: the text is no version, or it is older than the oldest profile.
    """
    known = ", ".join(p.version for p in _PROFILES)
    match = re.fullmatch(r"[vV]?(\d{1,4})\.(\d{1,4})(?:[.\-+a-z]\S*)?", version.strip())
    if match is None:
        raise SettingsError("engine_version", version, f"a vLLM release such as 0.32 or v0.25.1; profiles: {known}")
    asked = (int(match[1]), int(match[2]))
    older = [p for p in _PROFILES if _number(p) <= asked]
    if not older:
        hint = "Releases before 0.10 mix the V0 engine in, which decides differently"
        raise SettingsError("engine_version", version, f"0.10 or newer; profiles: {known}", hint)
    return older[-1]


def _number(p: Profile) -> tuple[int, int]:
    major, minor = p.version.split(".")
    return int(major), int(minor)
