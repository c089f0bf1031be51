#!/usr/bin/env bash
# Builds every fuzz target with coverage counters on the stable toolchain and runs each for SECONDS (default 20) from
# the fixtures, and from a folder of images in FUZZ_SEEDS where one is named. Stops at the first crash, whose input
# libFuzzer leaves in fuzz/artifacts/.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-20}
coverage='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4'
coverage+=' -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table'
coverage+=' -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing'
RUSTFLAGS=$coverage cargo build --release --target x86_64-unknown-linux-gnu --bins
mkdir -p artifacts corpus/seeds
cp ../fixtures/images/* ../fixtures/defects/* ../fixtures/bad/* corpus/seeds/
if [ -n "${FUZZ_SEEDS:-}" ]; then find "$FUZZ_SEEDS" -maxdepth 1 -type f -size -64k -exec cp -t corpus/seeds {} +; fi
for source in fuzz_targets/*.rs; do
  target=$(basename "$source" .rs)
  mkdir -p "corpus/$target"
  echo "fuzz: $target for $seconds s"
  log=artifacts/$target.log
  if ! "target/x86_64-unknown-linux-gnu/release/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 -artifact_prefix=artifacts/ "corpus/$target" corpus/seeds >"$log" 2>&1; then
    tail -n 40 "$log"
    echo "fuzz: $target failed, its input lies in fuzz/artifacts"
    exit 1
  fi
  grep -E 'stat::number_of_executed_units|stat::peak_rss_mb' "$log"
done
echo "fuzz: all targets ran for $seconds s without a crash"
