#!/bin/sh
# Makes folders visible to every user of one node: open_path.sh CLOSED FOLDER...   Run it as root in the node's mount namespace.
# CLOSED is an ancestor of the FOLDERs that other users may not enter (often /root). On this node only, an empty folder that they
# may enter is mounted over it, and the FOLDERs are mounted in that one, read-only, under their own names.
set -eu
umask 022
closed=$1
shift
mount -t tmpfs -o size=1m tmpfs /mnt
number=0
for folder in "$@"; do
    number=$((number + 1))
    mkdir "/mnt/$number"
    mount --bind "$folder" "/mnt/$number"
    mount -o remount,bind,ro "/mnt/$number"
done
mount -t tmpfs -o size=1m,mode=755 tmpfs "$closed"
number=0
for folder in "$@"; do
    number=$((number + 1))
    mkdir -p "$folder"
    mount --move "/mnt/$number" "$folder"
done
umount /mnt
