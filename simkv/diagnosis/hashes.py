"""What hashes can do to a cache that several processes share: miss for ever, or serve somebody else's content."""

from __future__ import annotations

import math

from simkv.engine.profiles import Profile


def shared_root(profile: Profile, hash_seed: str | None) -> tuple[bool, str]:
    """Whether two processes of this release hash the same prompt alike, and why in a sentence.

    Args:
        hash_seed: PYTHONHASHSEED of both; ``None`` if it is not set, ``random`` counts as not set.
    """
    seeded = hash_seed is not None and hash_seed != "random"
    if profile.fixed_none_hash or seeded:
        return True, f"Both processes start their hashes alike ({'PYTHONHASHSEED' if seeded else 'this release fixes the root'})."
    return False, (
        f"vLLM {profile.version} draws the root of its block hashes at random in each process, so no block of one process is ever found by"
        " another. Set the same PYTHONHASHSEED everywhere or use a release with a fixed root (0.29 or later)."
    )


def collision_probability(bits: int, contents: int) -> float:
    """Probability that among so many different contents at least two have the same hash of so many bits.

    Exact for hashes that are evenly distributed: 1 - prod(1 - i / 2^bits).
    """
    space = 2.0**bits
    if contents > space:
        return 1.0
    return -math.expm1(math.fsum(math.log1p(-i / space) for i in range(contents)))
