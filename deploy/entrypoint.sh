#!/bin/sh
# The image's entry: `worker ...` and `coordinator ...` are the two programs, anything else is the
# command line (`status`, `config check`). exec: signals reach the program itself.
set -eu
case "${1:-}" in
worker | coordinator)
    program="epp-fleet-$1"
    shift
    exec "$program" "$@"
    ;;
*)
    exec epp-fleet "$@"
    ;;
esac
