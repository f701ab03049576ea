#!/bin/sh
# Starts a program that does not become a daemon by itself: background.sh LOG PROGRAM ARGUMENTS...
# When this script has ended, the program is a child of process 1, and has no terminal.
set -eu
log=$1
shift
setsid "$@" </dev/null >>"$log" 2>&1 &
