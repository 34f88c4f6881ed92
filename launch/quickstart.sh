#!/usr/bin/env bash
# Trains a small English-French model on the built-in phrasebook, scores it, translates sentences and
# draws two pictures: what each attention head looks at, and the curves of the training. Started
# again, it resumes training if that has not finished. Before a training on your own text,
# python -m transformer.tools.audit looks that text over; docs/data.md has the command.
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
