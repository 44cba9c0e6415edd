"""``init``: a new project."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
def init(folder: Path) -> None:
    """Writes a project to FOLDER (default: here): train.py, job.json, and a README.md that says how to run them.

    Files that are there already are not overwritten.
    """
    from batchhvd.cli.flows import project

    for path in project.write(folder):
        click.echo(f"wrote {path}")
    inside = "" if folder == Path() else f"cd {folder} && "
    click.echo(f"next: {inside}batchhvd run train.py --nodes 4")
