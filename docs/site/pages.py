"""Hooks of the documentation site: pages from outside docs/, and links between them.

The documents are written to be read in a checkout too, so they link to files of the repository: `../controller/cycle/plan.py`.
Each such file, and each such folder, gets a page of its own in the site, which shows it. README.md and the other
documents of the root become pages beside those of docs/. A link to something that does not exist stays as it is, and MkDocs
reports it.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
_CODE = re.compile(r"^(```+).*?^\1\s*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\|.*`[^`]*\\\|[^`]*`.*$", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)#\s]+)")
_PICTURE = re.compile(r'(?:(?<=src=")|(?<=ref="))(?![a-z]+:)([^"#]+\.(?:png|svg))')
"""Address of a picture in HTML, where Markdown cannot say how wide it is."""
_LANGUAGES = {".py": "python", ".lua": "lua", ".sh": "bash", ".toml": "toml", ".proto": "protobuf", ".c": "c"}
_HIDDEN_FROM_SEARCH = "---\nsearch:\n  exclude: true\n---\n"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the documents of the root, and a page for each file or folder of the repository that a document links to."""
    documents = {path: path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    documents |= {ROOT / name: uri for name, uri in ROOT_PAGES.items()}
    for name, uri in ROOT_PAGES.items():
        files.append(File.generated(config, uri, content=_read(ROOT / name)))
    linked = {target for path in documents for target in _linked_sources(path)}
    for target in sorted(linked):
        files.append(File.generated(config, _page_of(target), content=_HIDDEN_FROM_SEARCH + _show(target)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001  MkDocs' signature
    """Make each link to a file of the repository lead to its page in the site."""
    uri = page.file.src_uri
    origin = {page_uri: ROOT / name for name, page_uri in ROOT_PAGES.items()}.get(uri, DOCS / uri)
    if uri.startswith("source/"):
        return markdown
    # In code within a table GitHub needs the backslash, and Markdown's own tables would show it.
    markdown = _ROW.sub(lambda row: row[0].replace("\\|", "|"), markdown)
    return _outside_code(markdown, partial(_with_site_links, origin=origin, uri=uri))


def _read(path: Path) -> str:
    # Markdown inside of HTML is left alone without this attribute.
    return path.read_text().replace("<details>", "<details markdown>")


def _outside_code(markdown: str, change: partial[str]) -> str:
    """Apply `change` to the text between the code blocks and code spans."""
    parts, end = [], 0
    for match in _CODE.finditer(markdown):
        parts += [change(markdown[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*parts, change(markdown[end:])])


def _with_site_links(text: str, *, origin: Path, uri: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        target = (origin.parent / match[1]).resolve()
        if not target.exists() or not target.is_relative_to(ROOT):
            return match[1]
        return posixpath.relpath(_page_of(target), posixpath.dirname(uri) or ".")

    return _PICTURE.sub(replaced, _LINK.sub(replaced, text))


def _linked_sources(path: Path) -> Iterator[Path]:
    """Files and folders of the repository that a document links to and that are not pages of the site themselves."""
    for match in _LINK.finditer(_CODE.sub("", path.read_text())):
        target = (path.parent / match[1]).resolve()
        is_page = target.is_relative_to(DOCS) or (target.name in ROOT_PAGES and target.parent == ROOT)
        if target.exists() and target.is_relative_to(ROOT) and not is_page:
            yield target


def _page_of(target: Path) -> str:
    """Return the address, within the site's sources, of the page for a file or folder of the repository."""
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    name = target.relative_to(ROOT).as_posix()
    if name in ROOT_PAGES:
        return ROOT_PAGES[name]
    return f"source/{name}.md" if target.is_file() else f"source/{name}/index.md"


def _show(target: Path) -> str:
    """Return a page with the text of a file, or with the contents of a folder."""
    title = f"# `{target.relative_to(ROOT).as_posix()}`\n\n"
    if target.is_file():
        text = target.read_text()
        fence = "`" * (3 + max((len(run) for run in re.findall(r"`{3,}", text)), default=0))
        return f"{title}{fence}{_LANGUAGES.get(target.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"
    rows = [f"| `{path.name}{'/' * path.is_dir()}` | {_summary(path)} |" for path in _entries(target)]
    return "\n".join([title + _summary(target, whole=True), "", "| | |", "|---|---|", *rows, ""])


def _entries(folder: Path) -> list[Path]:
    """Folders first, then files, by name; nothing that a build leaves."""
    left_by_builds = {"__pycache__", "__init__.py"}
    entries = [path for path in folder.iterdir() if path.name not in left_by_builds and path.suffix != ".so"]
    return sorted(entries, key=lambda path: (path.is_file(), path.name))


def _summary(path: Path, *, whole: bool = False) -> str:
    """Return the first line of the docstring of a module or package, or all of it; empty where there is none."""
    source = path / "__init__.py" if path.is_dir() else path
    if source.suffix != ".py" or not source.exists():
        return ""
    text = ast.get_docstring(ast.parse(source.read_text())) or ""
    text = text.replace("<", "&lt;").replace("*", r"\*")
    return text if whole else text.partition("\n")[0].replace("|", r"\|")
