#!/usr/bin/env bash
# Virtual environments of the peers, one each: benchmarks/peers/setup.sh [mineru_vl_utils] [mineru_345]
# Default: all. They land in build/peers/NAME; nothing is done when the pinned packages are installed already.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
for name in "${@:-mineru_vl_utils mineru_345}"; do
  for peer in $name; do
    venv="$root/build/peers/$peer"
    pins="$root/requirements/peer-${peer//_/-}.txt"
    if ! cmp -s "$pins" "$venv/.installed"; then
      rm -f "$venv/.installed"
      [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
      "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$pins"
      cp "$pins" "$venv/.installed"
    fi
    echo "$venv/bin/python"
  done
done
