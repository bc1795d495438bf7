"""Plain text, many adapters and many images before one model: three kinds of content that share a pool but no block."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from simkv.workload.generators.arrivals import arrivals
from simkv.workload.generators.build import OWN, SHARED, Piece, workload
from simkv.workload.generators.draws import Draws
from simkv.workload.generators.params import LENGTH_CV, REQUESTS, SALTS, Generator, Param, Values, arriving
from simkv.workload.workload import I8, IMAGE, Lora, Workload

KINDS = ("text", "adapters", "images")
TEXT, ADAPTERS, IMAGES = range(3)


def make(draws: Draws, v: Values) -> Workload:
    """Prompt = system prompt of the assistant + [image] + a question of its own; an adapter changes every block's key."""
    n = v["requests"]
    when = arrivals(draws, n, v)
    lot = draws.stream("kind").random(n)
    kind = np.where(lot < v["adapter_share"], ADAPTERS, np.where(lot < v["adapter_share"] + v["image_share"], IMAGES, TEXT)).astype(
        np.int64
    )
    assistant = draws.choices("assistant", n, v["assistants"], v["skew"])
    adapter = draws.choices("adapter", n, v["adapters"], v["skew"])
    image = draws.numbers(n) // max(1, round(v["questions"] / max(v["image_share"], 1e-9)))
    image = image + (draws.stream("image").random(n) * v["open_images"]).astype(np.int64)
    question = draws.lengths("question", n, v["question_tokens"], v["length_cv"])
    output = draws.lengths("output", n, v["output_tokens"], v["length_cv"])
    pieces = [
        Piece(SHARED + assistant, v["system_tokens"]),
        # The placeholders of all images are the same tokens: only the image's identity tells its blocks apart.
        Piece(SHARED + v["assistants"], np.where(kind == IMAGES, v["image_tokens"], 0).astype(np.int64)),
        Piece(OWN + draws.numbers(n), question),
    ]
    # Who owns a request is its kind: routers that keep a session together then keep a kind together.
    made = workload("adapters_and_images", replace(when, user=kind), pieces, output, tenant=kind, tenants=len(KINDS))
    return replace(
        made,
        tenants=KINDS,
        sessions=KINDS,
        loras=tuple(Lora(f"adapter-{k}", k + 1, f"adapter-{k}") for k in range(v["adapters"])),
        lora=np.where(kind == ADAPTERS, adapter, -1).astype(np.int32),
        **_images(kind, image, v),
    )


def _images(kind: I8, image: I8, v: Values) -> dict[str, Any]:
    """One image behind the system prompt of every request of that kind."""
    has = kind == IMAGES
    shown, which = np.unique(image[has], return_inverse=True)
    rows = np.zeros(int(has.sum()), IMAGE)
    rows["identifier"], rows["offset"], rows["length"] = which, v["system_tokens"], v["image_tokens"]
    return {
        "first_image": np.concatenate([[0], np.cumsum(has)]).astype(np.int64),
        "images": rows,
        "image_identifiers": tuple(f"image-{k}" for k in shown.tolist()),
    }


GENERATOR = Generator(
    name="adapters_and_images",
    title="Adapters and images",
    story="Some requests are plain text under a few system prompts, some name one of many adapters, some bring an image. Adapters and"
    " images are part of a block's key, so the same system prompt is kept once for each adapter, and all of them push the others out.",
    params=(
        REQUESTS,
        Param("assistants", 4, "how many system prompts there are", 1, 10_000),
        Param("skew", 0.5, "how unevenly assistants and adapters are used (Zipf exponent; 0 = evenly)", 0, 4),
        Param("adapter_share", 0.3, "share of the requests that name an adapter", 0, 1),
        Param("adapters", 40, "how many adapters there are", 1, 4096),
        Param("image_share", 0.3, "share of the requests that bring an image (with the adapters' at most 1)", 0, 1),
        Param("open_images", 6, "images asked about at the same time", 1, 10_000),
        Param("questions", 5, "questions asked about an image, on average", 1, 10_000),
        Param("system_tokens", 1500, "tokens of a system prompt", 0, 1_000_000),
        Param("image_tokens", 1200, "tokens of an image", 1, 100_000),
        Param("question_tokens", 120, "mean tokens of a question", 1, 1_000_000),
        Param("output_tokens", 120, "mean tokens of an answer", 1, 100_000),
        LENGTH_CV,
        *arriving(),
        SALTS,
    ),
    make=make,
)
