#!/usr/bin/env bash
# Runs every test, a file of them at a time on each core, and one more, since some wait for what
# they start; arguments go to pytest, such as:
# bash launch/test.sh tests/ops -k causal
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# Named here too, so that a change of any of them installs it.
setup requirements.txt launch/requirements.txt transformer/inference/requirements.txt \
  tests/requirements.txt
exec .venv/bin/python -m pytest --numprocesses=$(($(nproc) + 1)) --dist=loadfile --no-loadscope-reorder "$@"
