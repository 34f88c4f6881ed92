#!/usr/bin/env bash
# Writes constraints.txt anew: for each Python from 3.11 on, the newest versions that the requirements
# files allow. Then make the results anew that are to be had with them.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob  # No tool need have requirements.
folder="$(mktemp -d)"
trap 'rm -r "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check uv
"$folder/bin/uv" pip compile --quiet --upgrade --universal --python-version 3.11 --no-annotate \
  --custom-compile-command 'bash launch/constraints.sh' --output-file constraints.txt \
  requirements.txt launch/requirements.txt transformer/tools/*/requirements.txt tests/requirements.txt
