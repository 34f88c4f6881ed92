# Makes .venv and installs what the given requirements files list; sourced by the
# other scripts of this folder, which then run with its python. Does nothing when
# the same files were installed before.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

setup() {
  local base="${PYTHON:-python3}" stamp
  if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "error: Python 3.11 or newer is needed; $base is" \
      "$("$base" --version 2>&1 || true). Set PYTHON=/path/to/python3.11" >&2
    exit 1
  fi
  stamp=".venv/installed-$(cat "$@" | sha256sum | cut -c1-16)"
  if [ ! -e "$stamp" ]; then
    echo "installing $* into .venv" >&2
    "$base" -m venv .venv
    local file arguments=()
    for file in "$@"; do arguments+=(-r "$file"); done
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "${arguments[@]}"
    touch "$stamp"
  fi
}
