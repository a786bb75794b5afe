"""A baseline in an environment of its own, measured in turn with this version."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from typer.testing import CliRunner

from benchmarks.simulator import Simulator, SimulatorConfig
from mineru_cli.app import app
from mineru_cli.bench import baseline as baselines
from mineru_cli.bench import peers
from mineru_cli.bench.against import _merged
from mineru_cli.bench.baseline import build_baseline
from mineru_cli.bench.peers import _as_file
from mineru_cli.bench.plan import Plan
from mineru_cli.bench.report import Mode, Report, load_report
from mineru_cli.bench.source import installed_distributions
from mineru_cli.bench.workload import BenchDocument, Documents
from mineru_cli.errors import UsageProblem
from mineru_engine.errors import EngineUnavailableError
from mineru_engine.options import Engine

ROOT = Path(__file__).parents[2]
MARK = "# the baseline\n"


def say(text: str) -> None:
    """Nobody listens."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with a version of our engine that differs in a comment, and our dependencies."""
    place = tmp_path_factory.mktemp("baseline") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    shutil.copytree(ROOT / "mineru_engine", packages / "mineru_engine", ignore=shutil.ignore_patterns("*.pyc"))
    with (packages / "mineru_engine" / "api.py").open("a") as stream:
        stream.write(MARK)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place


def command(demo: Path, against: Path | str, *words: object) -> list[str]:
    fixed = ["--tier", "flash", "--concurrency", "1", "--output", "x.json", "--seed", "1", "--against", str(against)]
    return [sys.executable, "-m", "mineru_cli", "bench", str(demo / "contract.pdf"), *fixed, *map(str, words)]


def process(demo: Path, cwd: Path, against: Path | str, *words: object) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT), "MINERU_WORKER_PROCESSES": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command(demo, against, *words), cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def test_both_versions_are_measured_in_turn(environment: Path, tmp_path: Path, demo: Path) -> None:
    with process(demo, tmp_path, environment, "--mode", "async", "--repeats", 3) as running:
        out, err = running.communicate(timeout=110)
    assert running.returncode == 0, err
    new, base = load_report(tmp_path / "x.json"), load_report(tmp_path / "x.base.json")
    differing = {name for name, digest in new.source.files.items() if base.source.files.get(name) != digest}
    assert differing == {"mineru_engine/api.py"}
    assert new.source.files.keys() == base.source.files.keys()
    assert new.source.lock_sha256 == base.source.lock_sha256 is not None
    for report in (new, base):
        assert report.intact
        assert report.complete
        assert [run.repeat for run in report.runs] == [0, 1, 2]
        assert report.workload.repeats == 3
        assert [result.variants for result in report.results] == [1]
        assert report.inputs[0].pages == 3
    assert new.results == base.results
    assert (new.workload, new.settings, new.options) == (base.workload, base.settings, base.options)
    order = re.findall(r"^(new|base): \[1/1\]", err, re.MULTILINE)
    assert len(order) == 6
    assert all({*pair} == {"new", "base"} for pair in zip(order[::2], order[1::2], strict=True))
    assert order[::2] != [order[0]] * 3  # by this seed, not always the same one begins
    assert "the baseline" in out
    assert "x.base.json" in err


def test_an_interrupt_keeps_the_repeats_that_both_have(environment: Path, tmp_path: Path, demo: Path) -> None:
    with process(demo, tmp_path, environment, "--mode", "async", "--repeats", 20) as running:
        assert running.stderr is not None
        finished = 0
        while finished < 2:
            line = running.stderr.readline()
            assert line, "it ended too early"
            finished += "[1/1]" in line
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
    assert running.returncode == 130
    for name in ("x.json", "x.base.json"):
        report = load_report(tmp_path / name)
        assert not report.complete
        assert [run.repeat for run in report.runs][:1] == [0]
        assert "incomplete" in {caveat.code for caveat in report.caveats}


def test_a_version_that_does_not_run_is_an_error(tmp_path: Path, demo: Path, environment: Path) -> None:
    broken = tmp_path / "venv"
    shutil.copytree(environment, broken, symlinks=True)
    (api,) = broken.rglob("mineru_engine/api.py")
    api.write_text("raise ImportError('broken on purpose')\n")
    with process(demo, tmp_path, broken, "--mode", "async", "--repeats", 1) as running:
        _, err = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "broken on purpose" in err
    assert "the version 'base' could not be measured" in err
    assert not (tmp_path / "x.json").exists()


# installing


def make_wheel(directory: Path, requirement: str = "") -> Path:
    """A wheel called mineru that needs nothing."""
    target = directory / "mineru-99-py3-none-any.whl"
    needs = f"Requires-Dist: {requirement}\n" if requirement else ""
    with zipfile.ZipFile(target, "w") as wheel:
        wheel.writestr("mineru_engine/__init__.py", "MARK = 'wheel'\n")
        wheel.writestr("mineru-99.dist-info/METADATA", f"Metadata-Version: 2.1\nName: mineru\nVersion: 99\n{needs}")
        wheel.writestr("mineru-99.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("mineru-99.dist-info/RECORD", "")
    return target


def test_a_wheel_gets_an_environment_that_goes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "REQUIREMENTS", ())
    with ExitStack() as stack:
        found = build_baseline(str(make_wheel(tmp_path)), Engine.ONNX, stack, say)
        code = "import mineru_engine; print(mineru_engine.MARK)"
        done = subprocess.run([str(found.python), "-P", "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "wheel\n"
        assert (found.state, found.ours_too) == ((None, None), True)
    assert not found.python.exists()


def test_what_cannot_be_installed_is_told(tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "REQUIREMENTS", ())
    wheel = make_wheel(tmp_path, "pydantic==0.0.1")
    with pytest.raises(EngineUnavailableError, match="pydantic"):  # the constraints say another version
        build_baseline(str(wheel), Engine.ONNX, stack, say)


def git(root: Path, *words: str) -> str:
    options = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", "-C", str(root), *options, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the repository that our code lies in."""
    root = tmp_path / "repository"
    (root / "mineru_engine").mkdir(parents=True)
    (root / "mineru_engine" / "__init__.py").write_text("MARK = 'first'\n")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "first")
    (root / "mineru_engine" / "__init__.py").write_text("MARK = 'second'\n")
    git(root, "commit", "--quiet", "-a", "-m", "second")
    monkeypatch.setattr(baselines, "package_root", lambda package: root)
    return root


def test_a_revision_is_checked_out_beside_and_removed(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def install(source: Path, extra: str | None, directory: Path) -> Path:
        seen.update(text=(source / "mineru_engine" / "__init__.py").read_text(), source=source, extra=extra)
        return directory / "python"

    monkeypatch.setattr(baselines, "_install", install)
    with ExitStack() as stack:
        found = build_baseline("HEAD~1", Engine.VLLM, stack, say)
        assert found.state == (git(repository, "rev-parse", "HEAD~1"), False)
    assert (seen["text"], seen["extra"]) == ("MARK = 'first'\n", "vllm")
    assert not seen["source"].exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize("name", ["no-such-thing", "-x", "--help", "missing.whl"])
def test_what_names_nothing_is_a_usage_error(name: str, repository: Path, stack: ExitStack) -> None:
    with pytest.raises(UsageProblem, match="neither a wheel, nor a source tree, nor a revision"):
        build_baseline(name, Engine.ONNX, stack, say)


def test_dependencies_are_those_of_this_environment_and_of_the_lock(repository: Path) -> None:
    (repository / "requirements").mkdir()
    (repository / "requirements" / "constraints.txt").write_text("# pins\npydantic==0.1\nonly-locked==7\n")
    pins = dict(line.split("==") for line in baselines._constraints().splitlines())
    assert pins["only-locked"] == "7"
    assert pins["pydantic"] != "0.1"
    assert not {"mineru", "pip"} & pins.keys()


def reaches_an_index(directory: Path) -> bool:
    words = ["download", "--quiet", "--no-deps", "--disable-pip-version-check", "--retries", "0", "hatchling"]
    command = [sys.executable, "-m", "pip", *words, "--dest", str(directory)]
    try:
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0
    except subprocess.TimeoutExpired:
        return False


PROJECT = """
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"
[project]
name = "mineru"
version = "99"
dependencies = ["orjson>=3"]
[tool.hatch.build.targets.wheel]
packages = ["mineru_engine"]
"""


def test_a_source_tree_is_installed_with_the_versions_of_here(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not reaches_an_index(tmp_path / "probe"):
        pytest.skip("no package index can be reached")
    (tmp_path / "mineru_engine").mkdir()
    (tmp_path / "mineru_engine" / "__init__.py").write_text("MARK = 'tree'\n")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    monkeypatch.setattr(baselines, "REQUIREMENTS", ("platformdirs>=4",))
    found = build_baseline(str(tmp_path), Engine.ONNX, stack, say)
    code = "import mineru_engine, orjson, importlib.metadata as m\n"
    code += "print(mineru_engine.MARK, m.version('orjson'), m.version('platformdirs'))"
    done = subprocess.run([str(found.python), "-P", "-c", code], capture_output=True, text=True, check=True)
    ours = installed_distributions()
    assert done.stdout.split() == ["tree", ours["orjson"], ours["platformdirs"]]
    assert found.state == (None, None)


# merging


def test_repeats_of_several_processes_are_one_report(tmp_path: Path, demo: Path) -> None:
    words = ["--tier", "flash", "--concurrency", "1", "--repeats", "1", "--mode", "async", "-q", "--output", "one.json"]
    env = os.environ | {"PYTHONPATH": str(ROOT), "MINERU_WORKER_PROCESSES": "1"}
    done = [sys.executable, "-m", "mineru_cli", "bench", str(demo / "contract.pdf"), *words]
    subprocess.run(done, cwd=tmp_path, env=env, check=True, capture_output=True)
    first = load_report(tmp_path / "one.json")
    document = BenchDocument(name="contract.pdf", path=demo / "contract.pdf")
    plan = Plan(documents=Documents(name="named documents", documents=(document,)), repeats=2, modes=(Mode.ASYNC,))

    def with_result(digest: str | None) -> Report:
        result = first.results[0].model_copy(update={"sha256": digest, "variants": int(digest is not None)})
        return first.model_copy(update={"results": [result]})

    def variants(*digests: str | None) -> int:
        return _merged([with_result(digest) for digest in digests], plan, None).results[0].variants

    assert (variants("a", "a"), variants("a", "b"), variants(None, "a"), variants(None, None)) == (1, 2, 1, 0)
    whole = _merged([first, first], plan, None)
    assert whole.intact
    assert whole.complete
    assert len(whole.runs) == 2
    assert whole.duration_s == pytest.approx(2 * first.duration_s)
    part = _merged([first], plan, None)
    assert not part.complete
    assert "incomplete" in {caveat.code for caveat in part.caveats}


# peers


def test_a_peer_gets_a_file_of_the_pages_only(tmp_path: Path, demo: Path) -> None:
    document = BenchDocument(name="report.pdf#11-14", path=demo / "report.pdf", pages="11-14")
    path, pages = _as_file(document, tmp_path)
    assert pages == 4
    with pypdfium2.PdfDocument(path) as part, pypdfium2.PdfDocument(demo / "report.pdf") as whole:
        assert len(part) == 4
        assert part[0].get_textpage().get_text_range() == whole[10].get_textpage().get_text_range()
    whole_file = BenchDocument(name="paper.pdf", path=demo / "paper.pdf")
    assert _as_file(whole_file, tmp_path) == (demo / "paper.pdf", 3)


def test_a_peer_is_measured_in_the_same_form(tmp_path: Path, demo: Path) -> None:
    if not (ROOT / "build" / "peers" / "mineru_vl_utils" / "bin" / "python").exists():
        pytest.skip("benchmarks/peers/setup.sh has not been run")
    with Simulator(SimulatorConfig(step_base_ms=5)) as simulator:
        words = ["--tier", "xhigh", "--concurrency", "1", "2", "--repeats", "1", "--peer", "mineru_vl_utils"]
        words += ["--server-url", simulator.url, "--output", "x.json"]
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "mineru_cli", "bench", str(demo / "contract.pdf"), *words]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    report = load_report(tmp_path / "x.json")
    assert report.intact
    assert [run.concurrency for run in sorted(report.runs, key=lambda run: run.concurrency)] == [1, 2]
    for run in report.runs:
        assert (run.mode, run.pages) == (Mode.ASYNC, 6)
        assert run.pages_per_s == pytest.approx(6 / run.elapsed_s)
        assert run.resources.peak_threads > 0
        assert run.requests.done is None
        assert run.loop_lag is None
        assert 0 <= run.series.t_s[0] <= run.series.t_s[-1] <= run.elapsed_s + 0.05
    assert (report.engine.engine, report.engine.simulated) == ("http", True)
    assert report.source.distributions["mineru_vl_utils"]
    assert "benchmarks/peers/mineru_vl_utils_http.py" in report.source.files
    assert report.inputs[0].pages == 3
    assert report.caveats[0].code == "peer"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--server-url", "http://u:canary@127.0.0.1:9"], "take no credentials"),
        (["--server-url", "http://127.0.0.1:9", "--duration", "5"], "read a batch"),
        (["--server-url", "http://127.0.0.1:9", "--mode", "sync-thread"], "are asynchronous"),
        (["--server-url", "http://127.0.0.1:9", "--save-results", "kept"], "keep no results"),
        (["--engine", "onnx"], "read with a model at a server"),
    ],
)
def test_what_peers_cannot_do(words: list[str], problem: str, demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers._Peer, "find", classmethod(lambda cls, name: None))
    done = CliRunner().invoke(
        app, ["bench", str(demo / "contract.pdf"), "--tier", "xhigh", "--peer", "x", "--output", "x.json", *words]
    )
    assert done.exit_code == 2
    assert problem in done.stderr
    assert "canary" not in done.output
