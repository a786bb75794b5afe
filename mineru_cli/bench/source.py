"""Which code was measured: revision, files, installed distributions. What cannot be found is ``None``, never a stop."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

from mineru_cli.bench.report import Source
from mineru_engine.manifest import hash_file
from mineru_engine.version import __version__

__all__ = ("LOCK", "describe_source", "git_state", "installed_distributions", "package_root")

LOCK = Path("requirements", "constraints.txt")
PACKAGES = ("mineru_engine", "mineru_cli")
_GIT_TIMEOUT_S = 30.0


def describe_source(state: tuple[str | None, bool | None] | None = None) -> Source:
    """The code of this process.

    :param state: revision and dirty flag, if they are known; the files may be a copy outside of the repository.
    """
    root = package_root("mineru_engine")
    files = dict(sorted(_files()))
    listed = "".join(f"{digest}  {name}\n" for name, digest in files.items())
    revision, dirty = git_state(root) if state is None else state
    # A copy of the harness that measures another version has the lock with it.
    locks = [package_root(package) / LOCK for package in PACKAGES]
    lock = next((path for path in locks if path.is_file()), None)
    return Source(
        revision=revision,
        dirty=dirty,
        tree_sha256=sha256(listed.encode()).hexdigest(),
        files=files,
        distributions=installed_distributions() | {"mineru": __version__},
        lock_sha256=hash_file(lock) if lock is not None else None,
    )


def package_root(package: str) -> Path:
    """The directory in which a package of ours lies; found without importing it."""
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).resolve().parents[1]


def _files() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        root = package_root(package)
        for path in (root / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(root).as_posix(), hash_file(path)


def installed_distributions() -> dict[str, str]:
    """Name → version of all that is installed beside this code; the first on the path counts, as for imports."""
    found: dict[str, str] = {}
    for item in distributions():
        if item.name:  # a broken installation has none
            found.setdefault(item.name, item.version)
    return dict(sorted(found.items(), key=lambda pair: pair[0].lower()))


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """The commit that a tree is of, and whether what is measured differs from it.

    A tree that merely lies inside somebody's repository is of none.
    """
    if _git(root, "ls-files", "--error-unmatch", "mineru_engine/__init__.py") is None:
        return None, None
    revision = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--", *PACKAGES, "pyproject.toml", str(LOCK.parent))
    return revision, None if changed is None else bool(changed)


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints; ``None`` if there is no git, no repository or no such thing."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
