# Copy this file into /etc/profile.d of each machine where users type squeue: plain `squeue` then has one more column, ADMIN_COMMENT.
# For jobs of which it shows JobHeldUser, that column says who holds them: headway:hold (Headway), or headway:user-hold (their user).
# The word headway:id=... before it tells a job from another one that gets its id later.
#
# The first columns are those of squeue's own default. squeue does not read the variable with -o, -O, -s, -l or --start. It is set only
# in shells at a terminal, and not for users who have a format of their own.
case $- in
*i*)
    if [ -z "${SQUEUE_FORMAT-}${SQUEUE_FORMAT2-}" ]; then
        SQUEUE_FORMAT2='JobArrayID:.18 ,Partition:.9 ,Name:.8 ,UserName:.8 ,StateCompact:.2 ,TimeUsed:.10 ,NumNodes:.6 ,ReasonList: ,admin_comment:'
        export SQUEUE_FORMAT2
    fi
    ;;
esac
