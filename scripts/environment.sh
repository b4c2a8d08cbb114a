# Sourced by every script here: where the project is, its virtual environment first on the path, and how to speak.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
oracle=$root/.venv-mxnet # MXNet, where it could be installed
cache=$root/.cache # stamps and logs of these scripts; safe to delete

# A tool chain installed for this user is found without a login shell.
if ! command -v cargo >/dev/null && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
  PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
fi
PATH=$venv/bin:$cache/tools/bin:$PATH:/usr/sbin:/sbin
export PATH VIRTUAL_ENV=$venv
export SYNCLINE_TEST_PYTHON=$venv/bin/python # Rust tests that start Python scripts use this one
unset PYTHONHOME
if [ -x "$oracle/bin/python" ]; then
  export SYNCLINE_ORACLE_PYTHON=${SYNCLINE_ORACLE_PYTHON:-$oracle/bin/python} # tests compare with MXNet there
fi

# Tests start four ranks wherever they run: more than cores is fine, and so is being root in a container.
export OMPI_MCA_rmaps_base_oversubscribe=1
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

say() { printf '%s\n' "$@"; } # one line for each argument

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

# The words before the first `#` of each line of a list.
listed() { sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$1"; }

# seconds_since START: whole seconds since `START=$SECONDS`.
seconds_since() { printf '%s s' "$((SECONDS - $1))"; }
