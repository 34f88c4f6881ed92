#!/usr/bin/env bash
# Trains a small English-French model on the built-in phrasebook, scores it, and prints some of its
# translations. Started again, it resumes training if that has not finished. Before a training on your
# own text, python -m transformer.tools.audit looks that text over; docs/data.md has the command.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup requirements.txt
workdir="${1:-runs/quickstart}"
"$python" train.py --config=configs/quickstart.py --workdir="$workdir"
"$python" eval.py --workdir="$workdir" --examples=12
