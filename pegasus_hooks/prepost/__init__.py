"""What runs before and after a job: the hooks that request paths and release them."""

from pathlib import Path

WATCHER = Path(__file__).resolve().parents[1] / "watcher.py"
"""Gives back what they could not; they start it."""
