#!/bin/sh
# Starts a program that does not become a daemon by itself: background.sh LOG PROGRAM ARGUMENTS...
# It is process 1's child once this has ended, and belongs to no terminal.
set -eu
log=$1
shift
setsid "$@" </dev/null >>"$log" 2>&1 &
