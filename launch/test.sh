#!/usr/bin/env bash
# Runs the tests that guard a change: a file of them at a time on each core, and one more, since
# some wait for what they start. Arguments go to pytest:
#   bash launch/test.sh --all                   # those that take long too
#   bash launch/test.sh tests/ops -k causal     # all of what is named
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# Named here too, so that a change of any of them installs it.
setup requirements.txt launch/requirements.txt transformer/inference/requirements.txt \
  tests/requirements.txt
exec "$python" -m pytest --numprocesses=$(($(nproc) + 1)) --dist=loadfile --no-loadscope-reorder "$@"
