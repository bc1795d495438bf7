"""The app: Streamlit and Plotly live here and nowhere else."""
