#!/usr/bin/env bash
# Updates constraints.txt: for each Python from 3.11, the newest versions that the requirements files
# allow. Afterwards, reproduce the documented results with these versions.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob  # Tools may have no requirements file.
folder="$(mktemp -d)"
trap 'rm -r "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check uv
"$folder/bin/uv" pip compile --quiet --upgrade --universal --python-version 3.11 --no-annotate \
  --custom-compile-command 'bash launch/constraints.sh' --output-file constraints.txt \
  requirements.txt launch/requirements.txt transformer/tools/*/requirements.txt tests/requirements.txt
