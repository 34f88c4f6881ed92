#!/usr/bin/env bash
# Trains a small English-French model on the built-in phrasebook, scores it, translates two
# sentences, and plots the attention of each head and the training curves. If training was
# interrupted, the same command resumes it. To train on custom text, first check the text with
# python -m transformer.tools.audit, as docs/data.md shows.
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
