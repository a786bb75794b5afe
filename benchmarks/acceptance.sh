#!/usr/bin/env bash
# Acceptance of a version on a machine with an NVIDIA GPU: against a baseline, embedded vLLM and a vLLM server.
#
#   benchmarks/acceptance.sh BASELINE MODEL [DOCUMENTS...]
#
# BASELINE: git revision, source tree, wheel or environment to compare with.   MODEL: directory or hub name of the model.
# DOCUMENTS: default the standard workload.
# Environment: PYTHON (one with mineru and vllm; default .venv/bin/python), OUT (default acceptance-TIME), REPEATS (8),
# CONCURRENCY ("1 2 4 8"), PORT (8765), SERVE_ARGS (for the server), ALLOW_CPU=1 (go on without a GPU, to try this
# script: what it then measures is no acceptance).
# Exit: 0 both gates passed, 1 one did not, 2 the machine is not fit for it.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; }
baseline=$1 model=$2; shift 2
python=${PYTHON:-.venv/bin/python} out=${OUT:-acceptance-$(date -u +%Y%m%dT%H%M%SZ)} port=${PORT:-8765}
repeats=${REPEATS:-8} concurrency=${CONCURRENCY:-1 2 4 8} server=
mkdir -p "$out"
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true' EXIT

unfit() { echo "acceptance: $1" >&2; exit 2; }

# 1. The machine: driver, versions, and that nobody else uses the GPU.
{
  date -u; uname -a; "$python" --version
  nvidia-smi --query-gpu=index,name,driver_version,memory.total,memory.used,utilization.gpu --format=csv || echo "no NVIDIA driver"
} >"$out/machine.txt" 2>&1
cat "$out/machine.txt"
"$python" -c "import vllm; print('vllm', vllm.__version__)" | tee -a "$out/machine.txt" || unfit "vllm is missing: pip install 'mineru[vllm]'"
"$python" -m pip freeze >"$out/packages.txt" 2>/dev/null || uv pip freeze --python "$python" >"$out/packages.txt"
git rev-parse HEAD >"$out/revision.txt"; git status --short >>"$out/revision.txt"
"$python" -m mineru_cli doctor --json >"$out/doctor.json" || true
if ! nvidia-smi >/dev/null 2>&1; then
  [ "${ALLOW_CPU:-}" = 1 ] || unfit "no NVIDIA driver answers; ALLOW_CPU=1 tries the script without"
elif [ -n "$(nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null)" ]; then
  unfit "another process uses the GPU: nvidia-smi shows it"
fi

bench() {  # NAME OPTIONS...: both versions in turn; a verdict that is no pass ends later
  local name=$1; shift
  # shellcheck disable=SC2086
  "$python" -m mineru_cli bench "$@" --tier xhigh --concurrency $concurrency --repeats "$repeats" --cancel-after 1 \
    --seed 1 --against "$baseline" --output "$out/$name.json" --html "$out/$name.html" || [ $? -eq 1 ]
  [ -s "$out/$name.base.json" ] || unfit "mineru bench could not measure: see above"
  "$python" -m mineru_cli compare "$out/$name.base.json" "$out/$name.json" --html "$out/$name-compare.html" \
    | tee "$out/$name-compare.txt" || failed="$failed $name"
}
failed=

# 2. vLLM in the process of the engine.
MINERU_MODEL_VLM_ENGINE=vllm MINERU_MODEL_VLM_MODEL="$model" bench embedded "$@"

# 3. The same model behind a server.
# shellcheck disable=SC2086
"$python" -m vllm.entrypoints.openai.api_server --model "$model" --port "$port" --host 127.0.0.1 \
  --logits-processors "${LOGITS_PROCESSOR:-mineru_vl_utils:MinerULogitsProcessor}" ${SERVE_ARGS:-} >"$out/server.log" 2>&1 &
server=$!
for _ in $(seq 600); do
  kill -0 "$server" 2>/dev/null || { tail -20 "$out/server.log" >&2; unfit "the vLLM server ended"; }
  curl -sf "http://127.0.0.1:$port/health" >/dev/null && break
  sleep 1
done
bench remote "$@" --engine http --server-url "http://127.0.0.1:$port"
kill "$server"; wait "$server" 2>/dev/null || true; server=

# 4. The evidence, in one file.
(cd "$out" && sha256sum ./* >SHA256SUMS)
tar -czf "$out.tar.gz" "$out"
echo "evidence: $out.tar.gz"
[ -z "$failed" ] || { echo "acceptance: not passed:$failed" >&2; exit 1; }
nvidia-smi >/dev/null 2>&1 || echo "acceptance: no GPU took part: this is not an acceptance"
