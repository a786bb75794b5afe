"""A baseline in an environment of its own: from a git revision, a source tree, a wheel, or a ready environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mineru_cli.bench.source import LOCK, git_state, installed_distributions, package_root
from mineru_cli.errors import UsageProblem
from mineru_engine.doctor.packages import REQUIREMENTS
from mineru_engine.errors import EngineUnavailableError
from mineru_engine.options import Engine

__all__ = ("Baseline", "build_baseline")

_GIT = ("git", "-c", "core.hooksPath=/dev/null")
_EXTRAS = {Engine.VLLM: "vllm", Engine.TRANSFORMERS: "transformers", Engine.LLAMA_CPP: "llama-cpp"}
_NOT_PINNED = {"mineru", "pip", "setuptools", "wheel", "uv"}
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==")
_SHOWN_LINES = 15


@dataclass(frozen=True, slots=True)
class Baseline:
    """Something to compare with, ready to run.

    :ivar python: the interpreter that has it installed.
    :ivar state: revision and dirty flag of its source, where there is one.
    :ivar ours_too: the environment was made to hold what this version needs as well.
    """

    python: Path
    state: tuple[str | None, bool | None]
    ours_too: bool


def build_baseline(against: str, engine: Engine, stack: ExitStack, say: Callable[[str], object]) -> Baseline:
    """Install what ``against`` names and what this version needs, in the versions that this process has.

    :param against: a git revision of the repository that this code lies in, a source tree, a wheel, or a virtual
        environment, which is taken as it is.
    :param engine: one that runs in process needs its packages.
    :param stack: gets the removal of everything made here.
    :raises UsageProblem: if it names nothing of these.
    :raises EngineUnavailableError: if it cannot be installed.
    """
    path = Path(against)
    state: tuple[str | None, bool | None] = (None, None)
    if (path / "pyvenv.cfg").is_file():
        return Baseline(_python(path.absolute()), state, ours_too=False)
    if path.suffix == ".whl" and path.is_file():
        source = path.resolve()
    elif (path / "pyproject.toml").is_file():
        source = path.resolve()
        state = git_state(source)
    else:
        revision = _revision(against)
        source, state = stack.enter_context(_worktree(revision)), (revision, False)
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mineru-baseline-")))
    say(f"installing the baseline {against} with the versions of this environment ...")
    return Baseline(_install(source, _EXTRAS.get(engine), directory), state, ours_too=True)


def _revision(name: str) -> str:
    root = package_root("mineru_engine")
    try:
        return _run([*_GIT, "-C", str(root), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]).strip()
    except EngineUnavailableError:
        raise UsageProblem(
            f"--against {name}: neither a wheel, nor a source tree, nor a revision of {root}",
            "name a revision as HEAD~1 or v1.0, a directory with a pyproject.toml, or a .whl file",
        ) from None


@contextmanager
def _worktree(revision: str) -> Iterator[Path]:
    root = str(package_root("mineru_engine"))
    with tempfile.TemporaryDirectory(prefix="mineru-baseline-") as name:
        place = Path(name, "source")
        _run([*_GIT, "-C", root, "worktree", "add", "--quiet", "--detach", str(place), revision])
        try:
            yield place
        finally:
            _run([*_GIT, "-C", root, "worktree", "remove", "--force", str(place)])


def _install(source: Path, extra: str | None, directory: Path) -> Path:
    """A virtual environment with it; returns its interpreter."""
    environment, constraints = directory / "venv", directory / "constraints.txt"
    constraints.write_text(_constraints(), encoding="utf-8")
    wanted = f"mineru{f'[{extra}]' if extra else ''} @ {source.as_uri()}"
    uv = shutil.which("uv")
    if uv is not None:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)])
        install = [uv, "pip", "install", "--quiet", "--python", str(_python(environment))]
    else:
        _run([sys.executable, "-m", "venv", str(environment)])
        install = [str(_python(environment)), "-m", "pip", "install", "--disable-pip-version-check"]
    _run([*install, "--constraint", str(constraints), wanted, *REQUIREMENTS])
    return _python(environment)


def _constraints() -> str:
    """What is installed here, and for the rest the lock: a dependency of the baseline that we have no more."""
    pins = {name.lower().replace("_", "-"): f"{name}=={version}" for name, version in installed_distributions().items()}
    lock = package_root("mineru_engine") / LOCK
    locked = lock.read_text(encoding="utf-8").splitlines() if lock.is_file() else []
    for line in locked:
        found = _PIN.match(line)
        if found:
            pins.setdefault(found[1].lower().replace("_", "-"), line)
    return "".join(f"{pin}\n" for name, pin in sorted(pins.items()) if name not in _NOT_PINNED)


def _python(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _run(command: Sequence[str]) -> str:
    """What a command prints.

    :raises EngineUnavailableError: if it fails, with the end of what it said.
    """
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        said = "\n".join(f"{done.stdout}{done.stderr}".strip().splitlines()[-_SHOWN_LINES:])
        raise EngineUnavailableError(f"{' '.join(command[:4])} … failed with {done.returncode}:\n{said}")
    return done.stdout
