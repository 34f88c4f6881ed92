#!/usr/bin/env bash
# Runs the default tests. Each worker runs one file at a time. There is one more worker than cores,
# since some tests wait for processes that they start. Arguments are passed to pytest:
#   bash launch/test.sh --all                   # includes the long tests
#   bash launch/test.sh tests/ops -k causal     # the tests of a folder with "causal" in their names
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# Lists all requirements files, so that a change of any of them is installed. Tools may have none.
shopt -s nullglob
setup requirements.txt launch/requirements.txt transformer/tools/*/requirements.txt \
  tests/requirements.txt
exec "$python" -m pytest --numprocesses=$(($(nproc) + 1)) --dist=loadfile --no-loadscope-reorder "$@"
