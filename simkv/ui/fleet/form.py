"""The group "Fleet" of the left column: how many replicas, which router, its settings, what is done to the replicas."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import streamlit as st

from simkv.fleet.routing import RoutingPolicy, policy_class, policy_names
from simkv.fleet.routing.rules import RULES
from simkv.settings.fleet import FleetSettings
from simkv.ui import engine_form, text
from simkv.ui.fleet import operations

BIND: Any = "query-params"
MOST_REPLICAS = 64
MOST = 1 << 30
KEYS = ("replicas", "router", "routers", "spread", "chars_per_token", "metrics_interval_s", "event_lag_s", "router_seed", "retries")
"""Controls that are the same for every router; those of a router's own settings are ``router.<policy>.<name>``."""


def draw(duration_s: float) -> FleetSettings | None:
    """Draw the group; ``None`` with one replica, where no router is asked.

    Args:
        duration_s: seconds from the first to the last arrival.

    Raises:
        SimkvError: the settings contradict each other, or the address is no good.
    """
    st.subheader("Fleet", anchor=False)
    replicas = int(
        st.number_input("replicas", 1, MOST_REPLICAS, 1, key="replicas", bind=BIND, help="Copies of the engine above behind a router.")
    )
    if replicas == 1:
        operations.forget()
        return None
    name = str(st.selectbox("router", policy_names(), key="router", bind=BIND, help="Each follows the rule of the real product."))
    policy = policy_class(name)
    st.caption(text.plain(rule(policy), 400))
    own = described(policy)
    told: dict[str, Any] = {}
    if own:
        with st.expander(f"Settings of {name}"):
            for field in own:
                told[field.name] = engine_form.control(f"router.{name}", field, field.default)
    with st.expander("Operations", expanded=bool(operations.texts())):
        done = operations.draw(duration_s, replicas)
    with st.expander("Router processes and clocks"):
        more = _more()
    changed = policy.Settings.from_mapping(told).changed() if own else {}
    return FleetSettings.from_mapping({"replicas": replicas, "router": name, "router_settings": changed, "operations": done, **more})


def described(policy: type[RoutingPolicy]) -> list[dataclasses.Field[Any]]:
    """The router's own settings, each with what a control needs to know: a help line and, for numbers, a range."""
    about = inspect.getdoc(policy.Settings) or ""
    out: list[dataclasses.Field[Any]] = []
    for known in dataclasses.fields(policy.Settings):
        said = re.search(rf"\b{known.name}\b[\w, ]*: (.+)", about)
        limits = {"help": said[1] if said else f"as of {policy.product}", "min": 0, "max": MOST}
        made: dataclasses.Field[Any] = dataclasses.field(default=known.default, metadata={**limits, **known.metadata})
        made.name, made.type = known.name, known.type
        out.append(made)
    return out


def rule(policy: type[RoutingPolicy]) -> str:
    """A policy's rule in one line, and whose it is."""
    said = RULES.get(policy.name) or inspect.cleandoc(policy.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return f"{said} ({policy.product})"


def _more() -> dict[str, Any]:
    fields = {f.name: f for f in dataclasses.fields(FleetSettings)}

    def help_of(name: str) -> str:
        words = str(fields[name].metadata["help"])
        return words[0].upper() + words[1:] + "."

    out: dict[str, Any] = {}
    out["routers"] = int(st.number_input("routers", 1, 256, 1, key="routers", bind=BIND, help=help_of("routers")))
    if out["routers"] > 1:
        ways = fields["spread"].metadata["choices"]
        out["spread"] = str(st.selectbox("spread", ways, key="spread", bind=BIND, help=help_of("spread")))
    out["chars_per_token"] = int(
        st.number_input("chars_per_token", 1, 64, 4, key="chars_per_token", bind=BIND, help=help_of("chars_per_token"))
    )
    out["metrics_interval_s"] = st.number_input(
        "metrics_interval_s",
        0.0,
        3600.0,
        None,
        1.0,
        key="metrics_interval_s",
        bind=BIND,
        placeholder="as the router polls",
        help=help_of("metrics_interval_s"),
    )
    out["event_lag_s"] = float(
        st.number_input("event_lag_s", 0.0, 3600.0, 0.0, 0.1, key="event_lag_s", bind=BIND, help=help_of("event_lag_s"))
    )
    out["retries"] = int(st.number_input("retries", 0, 1000, 3, key="retries", bind=BIND, help=help_of("retries")))
    out["seed"] = int(st.number_input("seed of the routers", 0, 2**31 - 1, 0, key="router_seed", bind=BIND, help=help_of("seed")))
    return out
