"""What runs before and after a job: the hooks that request paths and release them."""

from pathlib import Path

WATCHER = Path(__file__).resolve().parents[1] / "watcher.py"


def have_watched(watch: str, config: Path, submit_dir: Path, workflow: str) -> None:
    """Have the watcher of the folder ``watch`` release what the hooks of a workflow could not; it
    is started where none runs. Raises OSError."""
    from monitors.watcher import registry  # noqa: PLC0415

    folder = registry.folder_of(watch)
    registry.register(folder, config, submit_dir, workflow)
    registry.wake(folder, config, WATCHER)
