#!/usr/bin/env bash
# Trains cairn-nano from nothing and exports it, or goes on where a training stopped.
#   examples/nano/train.sh FOLDER [OUT] [PROCESSES]
# FOLDER keeps the state of the training, OUT (default FOLDER/model) receives the checkpoint.
# Needs Debian's python3-torch, python3-numpy, libopenblas0-pthread, sqlite3-doc, wordnet-base, gcc.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
out=${2:-$folder/model}
processes=${3:-2}

# Keeps freed memory: activations of one step have the sizes of those of the step before.
export MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=4294967296
python=/usr/bin/python3

if [ ! -e "$folder/tokenizer.json" ]; then
  "$python" "$here/make_tokenizer.py" "$folder"
fi
"$python" "$here/train.py" "$folder" --processes "$processes"
"$python" "$here/export.py" "$folder" "$out"
