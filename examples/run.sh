#!/usr/bin/env bash
# Builds Cairn and shows its point: an agent is killed in the middle of an answer, a new process goes
# on, and what it says equals a run that was never interrupted. Exits non-zero if it does not.
#   examples/run.sh [SEED]      SEED chooses where the process is killed
set -euo pipefail
cd "$(dirname "$0")/.."

readonly seed=${1:-$((RANDOM * 32768 + RANDOM))}
readonly build=build/release
readonly model=examples/models/nano
RANDOM=$((seed % 32768))

if [ -t 1 ]; then bold=$'\033[1m' green=$'\033[32m' red=$'\033[31m' plain=$'\033[0m'
else bold='' green='' red='' plain=''; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
value() { sed -n "s/^$2=//p" "$1"; }   # value FILE KEY

work=$(mktemp -d)
agent_pid=
cleanup() {
  if [ -n "$agent_pid" ]; then kill -KILL "$agent_pid" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap cleanup EXIT

build() {
  cmake/install_packages.sh
  local launcher=()
  if command -v ccache >/dev/null 2>&1; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  if ! { cmake --preset release "${launcher[@]}" &&
         cmake --build --preset release --target tool_loop hello; } >"$work/build.log" 2>&1; then
    cat "$work/build.log"
    exit 1
  fi
}

# What the user says, one after the other.
readonly tasks=(
  "What is index_level in storage/archive.yaml?"
  "The port of Vennor is 5512."
  "Fix the failing test."
  "What is 37 times 21?"
  "Set album_limit in storage/archive.yaml to 750."
  "Rename load_voucher to sum_voucher."
  "What is the port of Vennor?"
)

# run_agent NAME: one process of the agent over the store NAME and a copy of the workspace.
run_agent() {
  local arguments=()
  for task in "${tasks[@]}"; do arguments+=(--task "$task"); done
  [ -d "$work/$1.workspace" ] || cp -R examples/workspace "$work/$1.workspace"
  exec "$build/examples/tool_loop" --model "$model" --store "$work/$1" \
    --workspace "$work/$1.workspace" "${arguments[@]}" --thinking --greedy --max-tokens 200 \
    --transcript "$work/$1.transcript" --account "$work/$1.account"
}

# kill_at NAME BYTES: starts an agent and kills it once its transcript has BYTES bytes.
kill_at() {
  run_agent "$1" >"$work/$1.output" 2>&1 &
  agent_pid=$!
  while kill -0 "$agent_pid" 2>/dev/null; do
    if [ "$(stat -c %s "$work/$1.transcript" 2>/dev/null || echo 0)" -ge "$2" ]; then break; fi
  done
  kill -KILL "$agent_pid" 2>/dev/null || true
  wait "$agent_pid" 2>/dev/null || true
  agent_pid=
}

say "Building ($build)"
build

say "1. The agent works from start to end, uninterrupted"
echo "The model is cairn-nano: 9 MB, trained from nothing for this narrow world (examples/nano). Its calls"
echo "really read and edit files, and really run the tests, in a temporary copy of examples/workspace."
(run_agent uninterrupted)
say "What it changed"
diff -ru --exclude .agent examples/workspace "$work/uninterrupted.workspace" |
  sed "/^diff /d; s#^+++ $work/uninterrupted.workspace#+++ changed#; s/\t.*//; s/^/  /" || true

say "2. The same again in another store, killed with SIGKILL in the middle of an answer"
total=$(stat -c %s "$work/uninterrupted.transcript")
attempt=0
while :; do
  attempt=$((attempt + 1))
  target=$((total / 10 + (RANDOM * 32768 + RANDOM) % (total * 8 / 10)))
  name=killed_$attempt
  kill_at "$name" "$target"
  cp "$work/$name.transcript" "$work/before_kill"
  say "3. A new process opens the same session and goes on"
  (run_agent "$name")
  if [ "$(value "$work/$name.account" resumed_turns)" = 1 ]; then break; fi
  echo "(The kill fell between two answers; once more.)"
  if [ "$attempt" = 10 ]; then echo "No kill fell into an answer in 10 attempts."; exit 1; fi
done

account=$work/$name.account
of() { value "$account" "$1"; }
without_kill() { value "$work/uninterrupted.account" "$1"; }
say "Account"
cat <<END
  killed after              $(stat -c %s "$work/before_kill") of $total transcript bytes (seed $seed)

  The interrupted answer, continued by the new process
    prompt                  $(of first_prompt_tokens) tokens
      restored from disk    $(of first_from_disk), of them with windows replayed: $(of first_replayed)
      prefilled             $(of first_prefilled)
    answer                  $(of resumed_tokens) tokens were in the log already
    time to restore         $(of first_restore_ms) ms
    time to first token     $(of first_token_ms) ms

  The new process in all
    answers                 $(of turns)
    tokens generated        $(($(of output_tokens) - $(of resumed_tokens)))
    prompts                 $(of prompt_tokens) tokens: $(of from_memory) from memory, $(of from_disk) from disk, $(of prefilled) prefilled
    prefill, decode         $(of prefill_ms) ms, $(of decode_ms) ms
    bytes on disk           $(of bytes_on_disk) (uninterrupted run: $(without_kill bytes_on_disk))

  The uninterrupted process
    prompts                 $(without_kill prompt_tokens) tokens: $(without_kill from_memory) from memory, $(without_kill prefilled) prefilled
    prefill, decode         $(without_kill prefill_ms) ms, $(without_kill decode_ms) ms
END

echo
seen=$(stat -c %s "$work/before_kill")
if cmp "$work/uninterrupted.transcript" "$work/$name.transcript" &&
  cmp -n "$seen" "$work/before_kill" "$work/$name.transcript" &&
  diff -r "$work/uninterrupted.workspace" "$work/$name.workspace"; then
  echo "${green}All answers and files equal those of the uninterrupted run, byte for byte.${plain}"
else
  echo "${red}The answers or files differ from those of the uninterrupted run.${plain}"
  exit 1
fi
