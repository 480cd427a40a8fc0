"""Run attempts and record how they ended; start reading at `run.py`."""
