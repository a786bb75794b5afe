"""A real vLLM server with the tiny model: ``python -m benchmarks.tiny_vlm.serve --script FILE``.

Prints one line of JSON when it is ready and serves until a signal comes. Runs with any Python; the server itself
runs with the one that has vLLM (``--python``, or TINY_VLM_PYTHON, or build/venvs/vllm).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Self

ROOT = Path(__file__).resolve().parents[2]
MODEL_NAME = "mineru-tiny"
START_TIMEOUT_S = 300.0


class TinyServerError(RuntimeError):
    """vLLM did not come up."""


def vllm_python() -> Path | None:
    """The Python that has vLLM, if there is one."""
    named = os.environ.get("TINY_VLM_PYTHON")
    if named:
        return Path(named)
    own = ROOT / "build" / "venvs" / "vllm" / "bin" / "python"
    if own.exists():
        return own
    return Path(sys.executable) if find_spec("vllm") else None


def vllm_environment(script: Path | None = None) -> dict[str, str]:
    """Environment variables for a process that runs vLLM with the scripted model."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if script is not None:
        environment["TINY_VLM_SCRIPT"] = str(script.absolute())
    return environment


class TinyServer:
    """A vLLM server process; a context manager. It is up after about 30 s."""

    def __init__(
        self,
        script: Path | None = None,
        *,
        python: Path | None = None,
        model: Path = ROOT / "build" / "tiny_vlm",
        port: int = 0,
        max_num_seqs: int = 64,
        log: Path | None = None,
        more: Sequence[str] = (),
    ) -> None:
        found = python or vllm_python()
        if found is None:
            raise TinyServerError("no Python with vLLM: run benchmarks/tiny_vlm/setup.sh or set TINY_VLM_PYTHON")
        self._python = found
        self._script = script
        self._model = model
        self._max_num_seqs = max_num_seqs
        self._log_path = log
        self._log: IO[bytes] | None = None
        self._more = tuple(more)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port or _free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the API server; the engine is its child."""
        if self._process is None:
            raise TinyServerError("the server is not running")
        return self._process.pid

    def start(self) -> Self:
        """Build the model if needed, start the server and wait until it answers."""
        environment = vllm_environment(self._script)
        build = [str(self._python), "-m", "benchmarks.tiny_vlm.build", str(self._model)]
        subprocess.run(build, check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        self._log = self._log_path.open("wb") if self._log_path else None
        self._process = subprocess.Popen(
            self._command(),
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log or sys.stderr.fileno(),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._healthy():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise TinyServerError(f"vLLM did not come up{self._hint()}")
            time.sleep(0.2)
        return self

    def close(self) -> None:
        """Stop the server and its engine; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _command(self) -> list[str]:
        options = {
            "--model": str(self._model),
            "--served-model-name": MODEL_NAME,
            "--host": "127.0.0.1",
            "--port": str(self.port),
            "--logits-processors": "benchmarks.tiny_vlm.scripted:ScriptedLogits",
            "--dtype": "bfloat16",
            "--max-model-len": "8192",
            "--max-num-seqs": str(self._max_num_seqs),
            "--limit-mm-per-prompt": json.dumps({"image": 1}),
        }
        flat = [word for pair in options.items() for word in pair]
        server = [str(self._python), "-m", "vllm.entrypoints.openai.api_server"]
        return [*server, *flat, "--enforce-eager", *self._more]

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()

    def _hint(self) -> str:
        if self._log_path is None:
            return "; its messages are above"
        lines = self._log_path.read_text(errors="replace").splitlines()
        return f"; the end of {self._log_path}:\n" + "\n".join(lines[-20:])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiny_vlm.serve", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--script", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--log", type=Path, help="file for vLLM's messages; default: standard error")
    parser.add_argument("--max-num-seqs", type=int, default=64)
    parser.add_argument("more", nargs="*", help="after --: more options for vLLM's server")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with TinyServer(
        options.script,
        python=options.python,
        port=options.port,
        max_num_seqs=options.max_num_seqs,
        log=options.log,
        more=options.more,
    ) as server:
        print(json.dumps({"url": server.url, "port": server.port, "pid": server.pid, "model": MODEL_NAME}), flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopping", file=sys.stderr)


if __name__ == "__main__":
    main()
