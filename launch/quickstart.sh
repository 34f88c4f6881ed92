#!/usr/bin/env bash
# Trains a small English-French model on the built-in phrasebook, scores it, translates sentences and
# plots attention maps and training curves. If training was interrupted, rerun the script to resume.
# To train on a custom corpus, first check it with python -m transformer.tools.audit (docs/data.md).
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup requirements.txt transformer/tools/plot/requirements.txt
workdir="${1:-runs/quickstart}"
sentences=('The cats see the big green apples.' 'The dogs sleep.')
"$python" train.py --config=configs/quickstart.py --workdir="$workdir"
"$python" eval.py --workdir="$workdir" --examples=12
echo
paste -d'\n' <(printf '%s\n' "${sentences[@]}") \
  <(printf '%s\n' "${sentences[@]}" | "$python" eval.py --workdir="$workdir" --source=-)
echo
"$python" -m transformer.tools.attend --workdir="$workdir" --sentence="${sentences[0]}"
"$python" -m transformer.tools.plot "$workdir"
