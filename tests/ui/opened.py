"""Pages by AppTest: open one under an address, read what it says."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from tests.ui.conftest import APP


def open_app(patience_s: float = 180, **params: str) -> AppTest:
    """The whole app under ``?name=value…``; it must come up without an exception."""
    return opened(AppTest.from_file(str(APP), default_timeout=patience_s), params)


def open_page(page: str, patience_s: float = 180, **params: str) -> AppTest:
    """One page alone."""
    return opened(AppTest.from_string(f"from simkv.ui.pages import {page}\n{page}.page()", default_timeout=patience_s), params)


def opened(app: AppTest, params: dict[str, str]) -> AppTest:
    for name, value in params.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception, app.exception
    return app


def read(app: AppTest) -> str:
    """All Markdown of the page, without escapes."""
    return "\n".join(str(m.value) for m in app.markdown).replace("\\", "")


def param(app: AppTest, name: str) -> str:
    """A parameter of the address as it stands now."""
    value = app.query_params[name]
    return value if isinstance(value, str) else value[0]
