"""Brings the code blocks of the tutorial's six pages up to date: ``python docs/sync.py``.

The training script shown in tutorial.md becomes what batchhvd/trainer/cifar_cnn_distributed.py is now, and the blocks
of the translations become those of tutorial.md. The prose around them is left as it is.
"""

from __future__ import annotations

import re
from pathlib import Path

_HERE = Path(__file__).parent
_SCRIPT = _HERE.parent / "batchhvd" / "trainer" / "cifar_cnn_distributed.py"
_FENCED = re.compile(r"^(?:<!-- [^\n]+ -->\n)?```\w[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)


def with_script(page: str, name: str, script: str) -> str:
    """Returns the page with the script as its file block of that name."""
    mark = f"<!-- file: {name} -->\n"
    block = f"{mark}```python\n{script}```"
    blocks = [old for old in _FENCED.findall(page) if old.startswith(mark)]
    if len(blocks) != 1:
        raise ValueError(f"{len(blocks)} blocks are marked {mark.strip()}; the page must have one.")
    return page.replace(blocks[0], block)


def with_blocks(page: str, original: str) -> str:
    """Returns the page with its code blocks replaced, in order, by those of the original."""
    blocks = _FENCED.findall(original)
    shown = len(_FENCED.findall(page))
    if shown != len(blocks):
        raise ValueError(
            f"{shown} code blocks here and {len(blocks)} in tutorial.md: add or remove the others by hand."
        )
    following = iter(blocks)
    return _FENCED.sub(lambda _: next(following), page)


def sync(folder: Path, script: Path) -> list[Path]:
    """Rewrites the tutorial's pages in the folder, and returns those that changed.

    Raises:
        ValueError: A page has not as many code blocks as it should; the message names it.
    """
    pages = [folder / "tutorial.md", *sorted(folder.glob("tutorial.*.md"))]
    before = [page.read_text(encoding="utf-8") for page in pages]
    original = with_script(before[0], script.name, script.read_text(encoding="utf-8"))
    after = [original]
    for page, text in zip(pages[1:], before[1:], strict=True):
        try:
            after.append(with_blocks(text, original))
        except ValueError as error:
            raise ValueError(f"{page.name}: {error}") from error
    changed = [index for index in range(len(pages)) if after[index] != before[index]]
    for index in changed:
        pages[index].write_text(after[index], encoding="utf-8")
    return [pages[index] for index in changed]


if __name__ == "__main__":
    for changed_page in sync(_HERE, _SCRIPT):
        print(changed_page.name)
