#!/usr/bin/env bash
# Makes the reports of `mineru bench` in reports/ again, on an idle machine: about half an hour on two cores.
# Usage: benchmarks/reports.sh [builtin] [peers] [vllm] [cancel] [sampling]     (default: all)
# Needs: make demo; benchmarks/peers/setup.sh for peers; benchmarks/tiny_vlm/setup.sh for vllm and cancel.
set -euo pipefail
cd "$(dirname "$0")/.."
mineru=${MINERU:-.venv/bin/mineru} python=${PYTHON:-.venv/bin/python}
vllm=${VLLM_PYTHON:-build/venvs/vllm/bin/python} out=build/reports # not tracked: a report says whether the tree was clean
work=$(mktemp -d) simulator=
mkdir -p $out
trap 'kill $simulator 2>/dev/null || true; rm -rf "$work"' EXIT
documents="demo/contract_scan.pdf demo/paper.pdf"

# Where the simulated engine listens. A request takes it half a second or a whole one; about 17 pages/s.
simulated() {
  $python -m benchmarks.simulator --port 8765 --step-base-ms 30 --step-per-seq-ms 0.3 --tokens-per-step 16 >"$work/ready" &
  simulator=$!
  until [ -s "$work/ready" ]; do sleep 0.1; done
}
stopped() { kill $simulator; wait $simulator 2>/dev/null || true; simulator=; }

# The real vLLM on the CPU with the tiny model, whose answers are scripted for these documents.
in_vllm() {
  PYTHONPATH=. $vllm -c "from pathlib import Path; from benchmarks.tiny_vlm.build import build; build(Path('build/tiny_vlm'))"
  $python -m benchmarks.simulator.pages $documents -o "$work/script.json"
  TINY_VLM_SCRIPT=$work/script.json PYTHONPATH=. VLLM_CPU_KVCACHE_SPACE=1 VLLM_LOGGING_LEVEL=ERROR VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 \
    MINERU_MODEL_VLM_ENGINE=vllm MINERU_MODEL_VLM_MODEL=build/tiny_vlm \
    MINERU_MODEL_VLM_ENGINE_OPTIONS='{"dtype": "bfloat16", "enforce_eager": true, "max_model_len": 8192, "max_num_seqs": 64, "logits_processors": ["benchmarks.tiny_vlm.scripted:ScriptedLogits"]}' \
    $vllm -m mineru_cli bench $documents --tier xhigh --ocr-mode ocr --quiet "$@"
}

at_simulator() { $mineru bench --tier xhigh --ocr-mode ocr --server-url http://127.0.0.1:8765 --quiet "$@"; }

builtin() {
  $mineru bench --concurrency 1 2 4 8 --repeats 4 --quiet --output "$out/bench-builtin.json" --html "$out/bench-builtin.html"
}

peers() {
  simulated
  at_simulator --mode async --concurrency 1 4 --repeats 4 --output "$out/bench-simulator.json"
  for peer in mineru_vl_utils mineru_345; do
    at_simulator --peer $peer --mode async --concurrency 1 4 --repeats 4 --output "$out/bench-simulator-$peer.json"
  done
  stopped
}

vllm() { in_vllm --concurrency 1 4 --repeats 4 --output "$out/bench-vllm-cpu.json" --html "$out/bench-vllm-cpu.html"; }

cancel() {
  in_vllm --mode async --concurrency 4 --repeats 3 --cancel-after 1 --output "$out/bench-vllm-cpu-cancel.json"
  simulated
  at_simulator --mode async --concurrency 8 --repeats 3 --cancel-after 1 --output "$out/bench-simulator-cancel.json"
  stopped
}

# What looking ten times a second costs: the same, with looks and without, in turn.
sampling() {
  simulated
  for round in 1 2 3; do
    for every in 0.1 0; do
      at_simulator --mode async --concurrency 4 --repeats 4 --seed $round --sample-every $every --output "$work/sampling-$every-$round.json"
    done
  done
  stopped
  $python -m benchmarks.sampling_cost "$work"/sampling-*.json --output "$out/bench-sampling-cost.json"
}

for part in ${@:-builtin peers vllm cancel sampling}; do $part; done
cp $out/bench-*.json reports/
