"""The app: `streamlit run app.py`, or `simkv app`."""

from pathlib import Path

import streamlit as st

import simkv.ui
from simkv.ui import navigation

ASSETS = Path(simkv.ui.__file__).with_name("assets")

st.set_page_config("simkv", ASSETS / "icon.png", layout="wide", menu_items={"about": "simkv: every KV block of your LLM traffic."})
st.logo(ASSETS / "logo.svg", size="large", icon_image=ASSETS / "icon.png")
st.navigation([navigation.explore(), navigation.compare(), navigation.scenarios()], position="top").run()
