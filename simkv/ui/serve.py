"""``python -m simkv.ui.serve app.py [streamlit options]``: the server, which computes the opening example while the browser still loads.

``streamlit run app.py`` serves the same app; it only begins to import and to replay when the first page is open.
"""

from __future__ import annotations

import logging
import sys
import threading
from importlib import import_module

logger = logging.getLogger(__name__)

FIRST_NEEDED = ("pandas", "PIL.Image", "simkv.ui.pages.explore")
"""What the first run of a page would import while somebody waits."""


def prepare() -> None:
    """Replay what the page opens with, compiling the engine if need be. A failure is left for the page to tell."""
    try:
        from simkv import warm
        from simkv.engine.engines import is_compiled
        from simkv.ui import replaying, sidebar, sources
        from simkv.ui.run_store import store

        config = sidebar.opening()
        workload = sources.asked(config)
        job = store().start(config, lambda job: replaying.work(job, workload, config))
        for name in FIRST_NEEDED:
            import_module(name)
        job.done.wait()
        if not all(is_compiled(part) for part in warm.TINY_POOL):
            warm.the_rest().wait()
    except Exception:
        logger.exception("the opening example could not be prepared")


def main() -> None:
    """Serve until stopped."""
    from streamlit.web.cli import main as streamlit

    # Streamlit warns that this thread belongs to no page, which is meant.
    logging.getLogger("streamlit.runtime.scriptrunner_utils.script_run_context").addFilter(lambda record: record.threadName != "prepare")
    threading.Thread(target=prepare, name="prepare", daemon=True).start()
    sys.argv = ["streamlit", "run", *sys.argv[1:]]
    streamlit(prog_name="streamlit")


if __name__ == "__main__":
    main()
