"""The tutorial says the same in six languages, shows the script as it is, and no link in the documentation is dead."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import unicodedata
from collections import Counter
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LANGUAGES = ("pt", "fr", "ru", "ja", "de")
SCRIPT = ROOT / "batchhvd" / "trainer" / "cifar_cnn_distributed.py"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(ROOT.glob("notebooks/*.ipynb"))]

_BLOCK = re.compile(r"^(?:<!--[^\n]+-->\n)?```\w[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) +(.+?)(?: *\{#([\w-]+)\})? *$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\]\(\s*<?([^\s)>]+)|^\[[^\]]+\]: +(\S+)|\b(?:href|src|srcset)=\"([^\"\s]+)", re.MULTILINE)
_ABROAD = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


def _text(page: Path) -> str:
    """Returns a page as Markdown; of a notebook, its Markdown cells."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        return "\n\n".join("".join(cell["source"]) for cell in cells)
    return text


def _prose(text: str) -> str:
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)


def _links(text: str) -> list[str]:
    found = _LINK.findall(_CODE.sub("", _prose(text)))
    return [target for groups in found for target in groups if target and not _ABROAD.match(target)]


def _slug(heading: str) -> str:
    """Returns MkDocs's anchor of a heading: ASCII letters, digits and hyphens, in lower case."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    ascii_only = unicodedata.normalize("NFKD", shown).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


def _anchors(text: str) -> set[str]:
    prose = _prose(text)
    anchors = set(re.findall(r"\b(?:id|name)=\"([^\"]+)\"", prose)) | set(
        re.findall(r"^::: (\S+)", prose, re.MULTILINE)
    )
    seen: Counter[str] = Counter()
    for _, heading, named in _HEADING.findall(prose):
        slug = named or _slug(heading)
        anchors.add(f"{slug}_{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors


def _dead(page: Path, target: str) -> str:
    """Returns what is wrong with a relative link of a page, or nothing."""
    path, _, anchor = unquote(target).partition("#")
    there = (page.parent / path).resolve() if path else page
    if not there.exists():
        return f"{target}: there is no {there}"
    # The site has only what is in docs/.
    if page.parent == DOCS and DOCS not in (there, *there.parents):
        return f"{target}: leads out of docs/"
    known = _anchors(_text(there)) if anchor and there.suffix in (".md", ".ipynb") else set()
    if anchor and there.suffix in (".md", ".ipynb") and anchor not in known:
        return f"{target}: {there.name} has no such heading"
    return ""


def _tutorial(language: str) -> str:
    return _text(DOCS / f"tutorial.{language}.md")


@pytest.fixture
def original() -> str:
    return _text(DOCS / "tutorial.md")


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_sync", DOCS / "sync.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_translation_is_checked() -> None:
    assert {page.name for page in DOCS.glob("tutorial.*.md")} == {f"tutorial.{code}.md" for code in LANGUAGES}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_has_the_same_blocks(language: str, original: str) -> None:
    assert len(_BLOCK.findall(original)) >= 10
    assert _BLOCK.findall(_tutorial(language)) == _BLOCK.findall(original)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_has_the_same_sections_and_blocks_at_the_same_places(language: str, original: str) -> None:
    def outline(text: str) -> list[str]:
        numbered = _BLOCK.sub("```", text)
        return [line.split(" ")[0] for line in numbered.splitlines() if line.startswith(("#", "```"))]

    assert outline(_tutorial(language)) == outline(original)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_leaves_links_and_names_as_they_are(language: str, original: str) -> None:
    assert _links(_tutorial(language)) == _links(original)
    assert Counter(_CODE.findall(_prose(_tutorial(language)))) == Counter(_CODE.findall(_prose(original)))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_has_prose_of_its_own(language: str, original: str) -> None:
    theirs = {line for line in _prose(original).splitlines() if line and not line.startswith(("[", "<!--"))}
    assert not theirs.intersection(_prose(_tutorial(language)).splitlines())


@pytest.mark.parametrize("page", ["tutorial.md", *(f"tutorial.{code}.md" for code in LANGUAGES)])
def test_the_third_line_leads_to_every_language(page: str) -> None:
    line = _text(DOCS / page).splitlines()[2]
    assert _links(line) == ["tutorial.md", *(f"tutorial.{code}.md" for code in LANGUAGES)]


def test_the_page_shows_the_training_script_as_it_is(original: str) -> None:
    shown = re.search(rf"^<!-- file: {SCRIPT.name} -->\n```python\n(.*?)^```$", original, re.MULTILINE | re.DOTALL)
    assert shown
    assert shown[1] == SCRIPT.read_text(encoding="utf-8"), "run: python docs/sync.py"


def test_sync_brings_a_changed_script_to_all_pages(tool: ModuleType, tmp_path: Path) -> None:
    for page in DOCS.glob("tutorial*.md"):
        shutil.copy(page, tmp_path)
    before = {page.name: _prose(page.read_text(encoding="utf-8")) for page in tmp_path.iterdir()}
    script = tmp_path / SCRIPT.name
    script.write_text('print("\\n", r"\\1 é")\n', encoding="utf-8")
    assert len(tool.sync(tmp_path, script)) == 6
    for name, prose in before.items():
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert f'<!-- file: {SCRIPT.name} -->\n```python\nprint("\\n", r"\\1 é")\n```\n' in text
        assert _prose(text) == prose
    assert tool.sync(tmp_path, script) == []


def test_sync_writes_nothing_when_a_page_lacks_a_block(tool: ModuleType, tmp_path: Path) -> None:
    for page in DOCS.glob("tutorial*.md"):
        shutil.copy(page, tmp_path)
    last = tmp_path / "tutorial.ru.md"
    last.write_text(_BLOCK.sub("", last.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    script = tmp_path / SCRIPT.name
    script.write_text("pass\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"tutorial\.ru\.md: 10 code blocks"):
        tool.sync(tmp_path, script)
    assert "```python\npass\n```" not in (tmp_path / "tutorial.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_resolves(page: Path) -> None:
    assert [wrong for target in _links(_text(page)) if (wrong := _dead(page, target))] == []


def test_a_dead_link_is_found() -> None:
    page = DOCS / "index.md"
    links = '[a](none.md) ![b](no.svg) <img src="no.png">\n[i]: j.md\n'
    shown = f"{links}`[c](code.md)` [d](https://e.x/f)\n```text\n[g](h.md)\n```\n"
    order = ["none.md", "no.svg", "no.png", "j.md"]
    assert _links(shown) == order
    assert [bool(_dead(page, target)) for target in order] == [True] * 4
    assert _dead(page, "tutorial.md#connect") == _dead(page, "tutorial.md") == ""
    assert "no such heading" in _dead(page, "tutorial.md#disconnect")
    assert "out of docs/" in _dead(page, "../README.md")


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Set up a `cluster`", "set-up-a-cluster"),
        ("What's *not* there?", "whats-not-there"),
        ("Größe - 2.5 µs", "groe-25-s"),
    ],
)
def test_an_anchor_follows_the_sites_rule(heading: str, anchor: str) -> None:
    assert _slug(heading) == anchor


def test_the_readme_tells_the_tutorials_flow() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = next(body for body in re.findall(r"```python\n(.*?)```", readme, re.S) if "create_group" in body)
    tutorial = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    missing = [line for line in block.splitlines() if line not in tutorial.splitlines()]
    assert not missing
