"""Who looks: one browser tab."""

from __future__ import annotations


def viewer() -> str:
    """Identity of the session this script run is for; empty outside of one."""
    from streamlit.runtime.scriptrunner import get_script_run_ctx

    context = get_script_run_ctx()
    return context.session_id if context else ""
